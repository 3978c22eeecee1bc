//! A first policy for this machine: from its interfaces, the rules of nftables that it has, and three answers.
//!
//! [`Machine`] is what Linux says, as plain data; [`Answers`] are the operator's; [`draft()`] writes the policy. Everything that the
//! answers do not open stays shut. The policy has neither addresses nor routes: those of Linux count, static or learnt.

mod answer;
mod carry;
mod machine;
pub(crate) mod question;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use answer::{AnswerError, Answers, SshFrom, Suggestion, Wishes};
pub(crate) use carry::{Carried, carry};
pub(crate) use machine::Machine;
pub(crate) use text::{PAGE, draft};
