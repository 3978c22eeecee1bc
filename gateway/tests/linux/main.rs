//! Linux followed and written to, in network namespaces of their own, against what `ip` says.
#![allow(clippy::unwrap_used)]

mod burst;
mod follow;
mod netns;
mod oracle;
mod write;
