//! Trials of the fast path's programs: frames go through both as through the kernel, by its facility for test runs, without an interface
//! and without a worker.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use wire::ethernet::EtherType;
use wire::vlan::{TAG_LEN, Tag};

use super::{FastPath, FastPathError, Limits};
use crate::program::fast;
use crate::program::fast::trial::tagged;
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
    action: OwnedFd,
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
        let memory = path.programs();
        let programs = [fast::filter(&memory, limits, path.mark), fast::action(&memory, path.mark)];
        // Both loaded for a hook at which a test run gives the filter, too, the frame as a packet socket does.
        let [filter, action] = programs.map(|program| {
            let program = program.ok_or_else(|| io::ErrorKind::InvalidInput.into());
            let loaded = program.and_then(|program| bpf::load(Hook::TcxIngress, &tagged(program)));
            loaded.map_err(FastPathError::step("load a program of the fast path"))
        });
        Ok(Trial { filter: filter?, action: action?, path })
    }

    /// Has a frame go through both programs, as received by interface 1; its destination is the interface's if that is all zeros. Its outer tag is put beside it,
    /// as Linux does. Frames of a length that the kernel does not try are kept.
    ///
    /// # Errors
    /// The kernel refuses the test run.
    pub fn receive(&self, frame: &[u8]) -> io::Result<Tried> {
        const TCX_DROP: i32 = 2;
        const TCX_REDIRECT: i32 = 7;
        let (bytes, tag) = untagged(frame);
        let frame = &bytes[..];
        // Of a frame without an IP header there is no test run either.
        let least = if frame.get(12..14) == Some(&[0x86, 0xdd]) { 54 } else { 34 };
        if !(least..=LONGEST).contains(&frame.len()) {
            return Ok(Tried::Kept);
        }
        let context = Some(Context { tag, ..Context::default() });
        let decided = run_loaded(self.filter.as_fd(), frame, context)?;
        let done = run_loaded(self.action.as_fd(), frame, context)?;
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

/// A frame without its outer tag, and the tag.
fn untagged(frame: &[u8]) -> (Vec<u8>, Option<Tag>) {
    const ADDRESSES: usize = 12;
    let word = |at: usize| frame.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let tpid = word(ADDRESSES).map(EtherType).filter(|tpid| tpid.is_vlan());
    // Of a frame that ends in its tag Linux takes nothing.
    match (tpid, word(ADDRESSES + 2), word(ADDRESSES + TAG_LEN)) {
        (Some(tpid), Some(tci), Some(_)) => {
            ([&frame[..ADDRESSES], &frame[ADDRESSES + TAG_LEN..]].concat(), Some(Tag { tpid, tci }))
        }
        _ => (frame.to_vec(), None),
    }
}
