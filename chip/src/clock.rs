//! A clock's frequency, and a number of its cycles: the units of a chip's description and of modelled time.

/// A frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hertz(pub u64);

/// A number of cycles of a clock that the context names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cycles(pub u64);
