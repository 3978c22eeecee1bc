//! Following and configuring Linux, in network namespaces of their own, compared with the output of `ip`.
#![allow(clippy::unwrap_used)]

mod burst;
mod follow;
mod netns;
mod oracle;
mod write;
mod xfrm;
