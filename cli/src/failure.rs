//! What can go wrong with a command, what it says then, and with which code it exits.

use std::fmt;
use std::io;
use std::path::PathBuf;

use chip::cipher::CipherError;
use chip::reproduce::ReproduceError;
use chip::run::{RunError, SourceError};
use chip::setting::SetError;
use chip::sweep::BadAxis;
use chip::traffic::{BadStream, TrafficError};
use dataplane::replay::ReplayError;
use dataplane::tables::CompileError;
use gateway::ClientError;
use gateway::guard::ReleaseError;
use gateway::store::StoreError;
use policy::LoadError;
use policy::import::ImportError;
use wire::capture::{CaptureError, Problem};

use crate::bench::classify::Disagreement;
use crate::bench::classify::subject::BadHeader;
use crate::bench::forward::BenchError;
use crate::packet_syntax::WordError;
use crate::screen;

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// The policy or a test is wrong, an import left something untranslated, or two policies differ.
    Wrong = 1,
    /// The command line is wrong.
    Usage = 2,
    /// An input cannot be read, or an output not written.
    Unreadable = 3,
    /// The live gateway could not begin, or cannot be asked.
    NoGateway = 4,
}

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Standard output takes no more.
    Output(io::Error),
    /// The live gateway could not begin.
    Start(gateway::supervisor::StartError),
    /// A running gateway did not answer, or said no.
    Gateway(ClientError),
    /// Guards were not taken off.
    Release(ReleaseError),
    /// What a gateway remembers cannot be written to a file, or read from it.
    Store {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: StoreError,
    },
    /// A live capture cannot be written any more.
    CaptureFile {
        /// The file.
        path: PathBuf,
        /// Packets that are in it.
        packets: u64,
        /// What the system says.
        error: io::Error,
    },
    /// Two things were asked for that do not go together.
    Clash {
        /// One of them.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// A policy file cannot be read.
    Policy(LoadError),
    /// The policy in this file is wrong, in these many ways, which have been shown.
    Wrong {
        /// The file.
        file: String,
        /// Number of errors.
        errors: usize,
    },
    /// The policy cannot be compiled.
    Compile {
        /// Its file.
        file: String,
        /// Why not.
        error: CompileError,
    },
    /// The policy asks for more than this machine has.
    Setup {
        /// Its file.
        file: String,
        /// What it asks for.
        error: ReplayError,
    },
    /// A capture cannot be read or written.
    Capture(CaptureError),
    /// A directory or file cannot be written.
    Write {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A capture is said to come in by an interface that the policy does not have.
    NoInterface {
        /// What was said.
        name: String,
        /// Those that the policy has.
        known: Vec<String>,
    },
    /// The chip has no such port.
    NoPort {
        /// What was said.
        name: String,
        /// Numbers and kinds that it has.
        known: Vec<String>,
    },
    /// What would be written is what is read.
    Overwrites {
        /// The capture.
        path: PathBuf,
    },
    /// The policy says too little for what was asked.
    Lacks {
        /// What it says nothing of.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// A file cannot be read.
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Rules of another firewall cannot be read at all.
    Import {
        /// Their file.
        path: PathBuf,
        /// Why not.
        error: ImportError,
    },
    /// A packet in words is not understood.
    Words(WordError),
    /// A capture has fewer packets.
    NoPacket {
        /// The capture.
        path: PathBuf,
        /// The packet that was asked for.
        number: u64,
        /// Number of them.
        packets: u64,
    },
    /// A word is not among those that are known.
    Unknown {
        /// What kind of word.
        what: &'static str,
        /// The word.
        word: String,
    },
    /// No chip or mapping of that name comes with the program.
    NotShipped {
        /// A chip or a mapping.
        what: &'static str,
        /// The name.
        name: String,
        /// The one that was probably meant.
        nearest: Option<&'static str>,
        /// Those that do.
        known: Vec<&'static str>,
    },
    /// A chip of one's own was given without a mapping.
    NoMapping {
        /// Its name.
        chip: String,
    },
    /// There is nothing of that name.
    NotKnown {
        /// A claim or a cipher.
        what: &'static str,
        /// The name.
        name: String,
        /// Those there are.
        known: Vec<&'static str>,
    },
    /// A cipher cannot be measured.
    Cipher(CipherError),
    /// A claim could not be put to the test.
    Reproduce(ReproduceError),
    /// A parameter cannot be set.
    Set {
        /// Where it was said to be.
        path: String,
        /// Why not.
        error: SetError,
    },
    /// Programs or tables do not fit the chip, in these many ways, which have been shown.
    DoesNotFit {
        /// The mapping.
        file: String,
        /// Number of them.
        errors: usize,
    },
    /// Traffic cannot be made.
    Traffic(TrafficError),
    /// What is to be varied makes no sense.
    Grid(BadAxis),
    /// A key of generated traffic cannot be varied like that.
    Stream(BadStream),
    /// There is no frame to search with.
    NothingOffered,
    /// None of so many combinations could be run; each has been shown with its reason.
    NothingRan(usize),
    /// A chip did not run to the end.
    Chip(RunError),
    /// A page cannot be drawn: a fault of this program.
    Draw(String),
    /// A measurement could not be made.
    Bench(BenchError),
    /// There are no rules to search.
    NoRules {
        /// Their file.
        file: String,
    },
    /// Headers cannot be read.
    Trace {
        /// Their file.
        path: PathBuf,
        /// The line, from 1; 0 where it is no line.
        line: usize,
        /// What is wrong with it.
        problem: BadHeader,
    },
    /// Two searches of the same rules answer differently: a fault of this program.
    Disagree(Disagreement),
    /// Frames were lost or counted twice: a fault of this program.
    NotConserved,
}

impl Failure {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Start(_)
            | Failure::Gateway(
                ClientError::Unreachable { .. } | ClientError::Silent { .. } | ClientError::Garbled(_),
            ) => Exit::NoGateway,
            Failure::Gateway(ClientError::Refused(_)) => Exit::Wrong,
            Failure::Release(ReleaseError::Unpinned(_) | ReleaseError::Kernel(_)) => Exit::NoGateway,
            Failure::Release(_) => Exit::Wrong,
            Failure::Output(_)
            | Failure::Policy(_)
            | Failure::Capture(_)
            | Failure::Store { .. }
            | Failure::CaptureFile { .. }
            | Failure::Write { .. }
            | Failure::Read { .. }
            | Failure::Trace { .. }
            | Failure::Import { .. } => Exit::Unreadable,
            Failure::Wrong { .. }
            | Failure::Compile { .. }
            | Failure::Setup { .. }
            | Failure::Lacks { .. }
            | Failure::DoesNotFit { .. }
            | Failure::Chip(_)
            | Failure::NothingRan(_)
            | Failure::Reproduce(_)
            | Failure::Draw(_)
            | Failure::Bench(_)
            | Failure::NoRules { .. }
            | Failure::Disagree(_)
            | Failure::NotConserved => Exit::Wrong,
            Failure::Traffic(error) => match error {
                TrafficError::Capture(_) => Exit::Unreadable,
                TrafficError::NotThrough { .. } => Exit::Wrong,
                _ => Exit::Usage,
            },
            // What was asked for the chip does not have; a chip without what every cipher needs is a fault of its own.
            Failure::Cipher(CipherError::TooMany { .. } | CipherError::Key(_)) => Exit::Usage,
            Failure::Cipher(_) => Exit::Wrong,
            Failure::Clash { .. }
            | Failure::NoInterface { .. }
            | Failure::NoPort { .. }
            | Failure::NotKnown { .. }
            | Failure::Overwrites { .. }
            | Failure::Unknown { .. }
            | Failure::NotShipped { .. }
            | Failure::Set { .. }
            | Failure::Grid(_)
            | Failure::Stream(_)
            | Failure::Words(_)
            | Failure::NothingOffered
            | Failure::NoMapping { .. }
            | Failure::NoPacket { .. } => Exit::Usage,
        }
    }

    /// What to do about it.
    fn hint(&self) -> Option<String> {
        Some(match self {
            Failure::Output(_) | Failure::Wrong { .. } | Failure::Bench(_) => return None,
            Failure::Start(_) => {
                "run it as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, on Linux 6.6 or newer".to_owned()
            }
            Failure::Gateway(ClientError::Refused(trouble)) => trouble.hint.clone(),
            Failure::Release(ReleaseError::Unpinned(_) | ReleaseError::Kernel(_)) => {
                "run it as root, and name the directory of the gateway's --guards".to_owned()
            }
            Failure::Release(_) => "`wirerate release` without a name takes off all there are".to_owned(),
            Failure::Gateway(ClientError::Unreachable { error, .. })
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                "ask as root, or as the user that runs it".to_owned()
            }
            Failure::Gateway(ClientError::Unreachable { .. }) => {
                "start one with `wirerate run POLICY`, name its --socket, and ask as the user that runs it".to_owned()
            }
            Failure::Gateway(ClientError::Silent { .. }) => {
                "look whether it is stopped or stuck, and at its log; what was asked for may still be done".to_owned()
            }
            Failure::Gateway(ClientError::Garbled(_)) => "use the same version of wirerate for both".to_owned(),
            Failure::Store { error, .. } => match error {
                StoreError::System { operation: "write" | "rename", .. } => {
                    "check that there is room and that you may write there; nothing was saved".to_owned()
                }
                StoreError::System { .. } => "check the path and that you may read it".to_owned(),
                StoreError::NoFile => "name a file; nothing was saved".to_owned(),
                StoreError::Ageless => "set the clock, and save a state anew; nothing has changed".to_owned(),
                StoreError::Foreign | StoreError::Damaged | StoreError::Saved => {
                    "give what `wirerate save` wrote, or a gateway with --state; nothing has changed".to_owned()
                }
            },
            Failure::CaptureFile { .. } => {
                "check that there is room and that you may write there; the gateway goes on".to_owned()
            }
            Failure::Clash { .. } => "leave one of them out; --help says what each is for".to_owned(),
            Failure::Policy(_) => "give the path of a policy (TOML); policies/ has examples".to_owned(),
            Failure::Compile { .. } => "change the policy there".to_owned(),
            Failure::Setup { .. } => "lower `flows` under [limit], or free memory".to_owned(),
            Failure::Capture(error) => return hint_for(&error.problem).map(str::to_owned),
            Failure::Write { .. } => "name a directory that you may write to".to_owned(),
            Failure::NoInterface { known, .. } => format!("the policy has {}", known.join(", ")),
            Failure::NoPort { known, .. } => format!("the chip has {}", known.join(", ")),
            Failure::Overwrites { .. } => "name another directory with --out".to_owned(),
            Failure::Read { .. } => "check the path and that you may read it".to_owned(),
            Failure::Import { .. } => {
                "give what `nft -j list ruleset` or `iptables-save` printed, or a ClassBench filter set"
                    .to_owned()
            }
            Failure::Words(error) => error.hint(),
            Failure::NoPacket { packets, .. } => format!("its packets are numbered from 1 to {packets}"),
            Failure::Lacks { hint, .. } => (*hint).to_owned(),
            Failure::NotShipped { nearest, known, .. } => {
                let known = known.join(", ");
                match nearest {
                    Some(nearest) => {
                        format!("did you mean {nearest}? There are {known}; or give the path of a file (TOML)")
                    }
                    None => format!("there are {known}; or give the path of a file (TOML)"),
                }
            }
            Failure::NotKnown { name, known, .. } => match policy::nearest(name, known.iter().copied()) {
                Some(nearest) => format!("did you mean {nearest}? There are {}", known.join(", ")),
                None => format!("there are {}", known.join(", ")),
            },
            Failure::Set { .. } => {
                "paths are as in the TOML of the chip (memory.sram.latency) or of the mapping (pool.process.threads)"
                    .to_owned()
            }
            Failure::DoesNotFit { .. } => {
                "lower the policy's [limit], use fewer rules, place regions elsewhere with --set region.NAME=MEMORY, or take \
                 another --mapping: `wirerate chip list` has those that come with the program"
                    .to_owned()
            }
            Failure::Traffic(error) => return error.hint(),
            Failure::Chip(RunError::Deadlock(_)) => {
                "let another pool empty the ring, or give it more entries than there are threads that fill it".to_owned()
            }
            Failure::Chip(RunError::Source(SourceError::Traffic(error))) => return error.hint(),
            Failure::NothingOffered => "offer more frames than --warm leaves out".to_owned(),
            Failure::NoMapping { .. } => {
                "give one with --mapping FILE; docs/add/chip.md shows how, and `wirerate chip list tetra-pool` prints one to begin from".to_owned()
            }
            Failure::Grid(_) => "`wirerate chip sweep --help` has examples".to_owned(),
            Failure::Chip(_)
            | Failure::Cipher(_)
            | Failure::Reproduce(_)
            | Failure::Stream(_)
            | Failure::NothingRan(_)
            | Failure::Draw(_) => return None,
            Failure::NoRules { .. } => "give a ClassBench filter set or a policy that has rules; `wirerate generate rules` makes some".to_owned(),
            Failure::Trace { .. } => {
                "a line has source, destination, source port, destination port, protocol and flags, decimal; \
                 `wirerate generate trace` writes such lines"
                    .to_owned()
            }
            Failure::Disagree(_) => {
                "please report it, with the rules and the trace: one of the searches is wrong".to_owned()
            }
            Failure::Unknown { .. } => "`wirerate reasons` lists them all".to_owned(),
            Failure::NotConserved => {
                "please report it, with the policy and the captures: no count above can be trusted".to_owned()
            }
        })
    }

    /// True if it is only that nobody reads the output any more.
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Says it on standard error.
    pub(crate) fn tell(&self) {
        screen::error(self, self.hint().as_deref());
    }
}

fn hint_for(problem: &Problem) -> Option<&'static str> {
    match problem {
        Problem::Input(_) => Some("check the path and that you may read it"),
        Problem::Output(_) => Some("check that there is room and that you may write there"),
        Problem::BadMagic(_) => Some("give a capture that tcpdump, dumpcap or Wireshark wrote"),
        Problem::UnsupportedLink(_) => Some("capture on an Ethernet or IP interface, or on `any`"),
        Problem::HeaderCut => Some("the file is empty or was cut; capture again"),
        _ => Some("the file is damaged; `editcap` or `pcapfix` may save what is left"),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Output(error) => write!(f, "cannot write to standard output: {error}"),
            Failure::Start(error) => write!(f, "the gateway cannot begin: {error}"),
            Failure::Gateway(error) => error.fmt(f),
            Failure::Release(error) => error.fmt(f),
            Failure::Store { path, error } => write!(f, "{}: {error}", path.display()),
            Failure::CaptureFile { path, packets, error } => {
                let packets = screen::count(*packets, "packet", "packets");
                write!(f, "cannot write {}: {error}; {packets} are in it", path.display())
            }
            Failure::Clash { one, other } => write!(f, "{one} does not go with {other}"),
            Failure::Policy(error) => error.fmt(f),
            Failure::Wrong { file, errors: 1 } => write!(f, "{file} has an error"),
            Failure::Wrong { file, errors } => write!(f, "{file} has {errors} errors"),
            Failure::Compile { file, error } => write!(f, "{file} cannot be compiled: {error}"),
            Failure::Setup { file, error } => {
                write!(f, "{file} asks for more than this machine has: {error}")
            }
            Failure::Capture(error) => error.fmt(f),
            Failure::Write { path, error } => write!(f, "cannot write {}: {error}", path.display()),
            Failure::NoInterface { name, .. } => write!(f, "the policy has no interface `{name}`"),
            Failure::NoPort { name, .. } => write!(f, "the chip has no port `{name}`"),
            Failure::Overwrites { path } => {
                write!(f, "{} is read and would be written over", path.display())
            }
            Failure::Read { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            Failure::Import { path, error } => write!(f, "cannot import {}: {error}", path.display()),
            Failure::Words(error) => error.fmt(f),
            Failure::NoPacket { path, number, .. } => {
                write!(f, "{} has no packet {number}", path.display())
            }
            Failure::Lacks { what, .. } => write!(f, "the policy has no {what}"),
            Failure::Unknown { what, word } => write!(f, "`{word}` is no {what}"),
            Failure::NotShipped { what, name, .. } => {
                write!(f, "`{name}` is no {what} that comes with wirerate, and no file")
            }
            Failure::NotKnown { what, name, .. } => write!(f, "there is no {what} `{name}`"),
            Failure::Cipher(error) => error.fmt(f),
            Failure::Reproduce(error) => error.fmt(f),
            Failure::Set { path, error } => write!(f, "`{path}` cannot be set: {error}"),
            Failure::DoesNotFit { file, errors: 1 } => {
                write!(f, "something does not fit where {file} puts it")
            }
            Failure::DoesNotFit { file, errors } => {
                write!(f, "{errors} things do not fit where {file} puts them")
            }
            Failure::Traffic(error) => error.fmt(f),
            Failure::Grid(error) => error.fmt(f),
            Failure::Stream(error) => error.fmt(f),
            Failure::NothingOffered => f.write_str("the traffic has no frame that would count"),
            Failure::NoMapping { chip } => write!(f, "no mapping for the chip `{chip}` comes with wirerate"),
            Failure::NothingRan(many) => {
                write!(
                    f,
                    "none of {} could be run",
                    screen::count(*many as u64, "combination", "combinations")
                )
            }
            Failure::Chip(error) => error.fmt(f),
            Failure::Draw(error) => write!(f, "the page cannot be drawn: {error}"),
            Failure::Bench(error) => error.fmt(f),
            Failure::NoRules { file } => write!(f, "{file} has no rules to search"),
            Failure::Trace { path, line: 0, problem } => write!(f, "{}: {problem}", path.display()),
            Failure::Trace { path, line, problem } => write!(f, "{}:{line}: {problem}", path.display()),
            Failure::Disagree(error) => error.fmt(f),
            Failure::NotConserved => {
                f.write_str("frames are not conserved: those received are not those accounted for")
            }
        }
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Gateway(error)
    }
}

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Failure {
        Failure::Capture(error)
    }
}
