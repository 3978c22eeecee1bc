//! Trials of the fast path's programs: frames go through both as through the kernel, by its facility for test runs, without an interface
//! and without a worker.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::{FastPath, FastPathError, Limits};
use crate::program::fast;
use crate::sys::bpf::trial::{Context, run_loaded, stay_on_this_cpu};
use crate::sys::bpf::{self, Hook};

/// The line that frames come in by.
const LINE: usize = 0;
/// Packets that a worker may be behind: more than there are, so that none is dropped for that.
const BACKLOG: u32 = 1 << 30;

/// Longest frame that the kernel tries, as it is to fit in a page.
const LONGEST: usize = 3_000;

/// Both programs of a fast path, on the CPU of the thread that has made this.
pub struct Trial {
    path: Arc<FastPath>,
    filter: OwnedFd,
}

/// End of a frame that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The frame is the worker's.
    Kept,
    /// The frame is redirected, with these bytes.
    Gone(Vec<u8>),
    /// Neither: the programs do not agree.
    Lost,
}

impl Trial {
    /// Loads the filter of a line. The calling thread stays on its CPU from now on: the programs pass a decision on by CPU.
    ///
    /// # Errors
    /// The kernel refuses the program.
    pub fn new(path: Arc<FastPath>) -> Result<Trial, FastPathError> {
        stay_on_this_cpu();
        let limits = Limits { line: LINE, backlog: BACKLOG };
        let program = fast::filter(&path.programs(), limits, path.mark);
        let program = program.ok_or_else(|| io::ErrorKind::InvalidInput.into());
        // Loaded for a hook at which a test run gives it the frame as a packet socket does.
        let filter = program.and_then(|program| bpf::load(Hook::TcxIngress, &program));
        let filter = filter.map_err(FastPathError::step("load the filter of the fast path"))?;
        Ok(Trial { path, filter })
    }

    /// Has a frame go through both programs, as received by interface 1; its destination is the interface's if that is all zeros. Frames of a length
    /// that the kernel does not try are kept.
    ///
    /// # Errors
    /// The kernel refuses the test run.
    pub fn receive(&self, frame: &[u8]) -> io::Result<Tried> {
        const TCX_DROP: i32 = 2;
        const TCX_REDIRECT: i32 = 7;
        // Of a frame without an IP header there is no test run either.
        let least = if frame.get(12..14) == Some(&[0x86, 0xdd]) { 54 } else { 34 };
        if !(least..=LONGEST).contains(&frame.len()) {
            return Ok(Tried::Kept);
        }
        let context = Some(Context::default());
        let decided = run_loaded(self.filter.as_fd(), frame, context)?;
        let done = run_loaded(self.path.action(), frame, context)?;
        let is_kept = decided.value != 0;
        Ok(match (is_kept, done.value) {
            (true, TCX_DROP) => Tried::Kept,
            (false, TCX_REDIRECT) => Tried::Gone(done.frame),
            _ => Tried::Lost,
        })
    }

    /// Tells the filter that the worker has sent on all that was kept.
    pub fn settle(&self) {
        let table = &self.path.table;
        table.set_taken(LINE, table.passed(LINE));
    }
}
