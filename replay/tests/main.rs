//! Replays of captures that are made for it: what becomes of each packet, and what becomes of parts.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod fate;
mod split;
mod trial;
mod window;

#[path = "../../dataplane/tests/scene/mod.rs"]
mod scene;
