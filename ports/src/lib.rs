//! Live interfaces: where frames really enter and leave.
