//! The library's table of functions for this processor.

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// The library's functions, and its queues behind them; opaque.
#[repr(C)]
pub(crate) struct Functions {
    opaque: [u8; 0],
}

// SAFETY: signatures are those of glue.c, whose compiler checks them against the library's header.
unsafe extern "C" {
    fn wirerate_imb_new() -> *mut Functions;
    safe fn wirerate_imb_is_wide() -> i32;
    safe fn wirerate_imb_version() -> *const c_char;
}

/// A table that is never freed.
#[derive(Clone, Copy)]
pub(crate) struct Table(NonNull<Functions>);

// SAFETY: a table may be used by any thread. Functions without state take it as const; its queues are used by one thread at a time, which
// `Queues` sees to.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// A table with queues of its own; `None` where the processor lacks what the library needs, or memory is short.
    pub(crate) fn new() -> Option<Table> {
        // SAFETY: no arguments; the result is null or a table that is never freed.
        NonNull::new(unsafe { wirerate_imb_new() }).map(Table)
    }

    /// The table whose functions without state all share. Nobody uses its queues.
    pub(crate) fn shared() -> Option<Table> {
        static SHARED: OnceLock<Option<Table>> = OnceLock::new();
        *SHARED.get_or_init(Table::new)
    }

    pub(crate) fn as_ptr(self) -> *mut Functions {
        self.0.as_ptr()
    }
}

/// True where the processor has what the library needs.
pub fn is_usable() -> bool {
    Table::shared().is_some()
}

/// True where the library can be used and works on 512 bits at a time (AVX-512 with VAES).
pub fn is_wide() -> bool {
    is_usable() && wirerate_imb_is_wide() != 0
}

/// The version of the library that is linked, such as "1.3.0".
pub fn version() -> &'static str {
    // SAFETY: the result is a string that the library holds for ever, with a zero at its end.
    let version = unsafe { CStr::from_ptr(wirerate_imb_version()) };
    version.to_str().unwrap_or_default()
}
