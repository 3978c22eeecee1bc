//! The subcommands: one file each, with its arguments, its help and what it does.

pub(crate) mod bench;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod chip;
pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod drops;
pub(crate) mod estimate;
pub(crate) mod explain;
pub(crate) mod flows;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod live;
pub(crate) mod manual;
pub(crate) mod policies;
pub(crate) mod queues;
pub(crate) mod reasons;
pub(crate) mod replay;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod sa;
pub(crate) mod stages;
pub(crate) mod state;
pub(crate) mod test;
pub(crate) mod top;
