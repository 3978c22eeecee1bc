//! Linux followed and written to, in network namespaces of their own, against what `ip` says.
#![allow(clippy::unwrap_used)]

mod follow;
mod netns;
mod oracle;
mod write;
