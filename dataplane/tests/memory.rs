//! Tests of the data plane's memory. They are a binary of their own, as the allocator that counts touches all memory that is asked for
//! empty, and what takes 3 s in the other one takes 100.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod allocation;
mod flood;
mod scene;
