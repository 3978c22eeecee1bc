//! Capture files: pcap and pcapng read, pcapng written.
//!
//! A [`Reader`] streams [`Record`]s out of a file or any other source and never needs more memory than one record of
//! [`MAX_CAPTURED`] bytes with its options, whatever lengths the file claims. A file that breaks off in the middle of a
//! record yields all complete records, then ends; [`Reader::cut_short`] gives the offset. An unreadable file is a
//! [`CaptureError`] with file, offset and [`Problem`]; after an error from which reading cannot resume, the reader is
//! at its end.
//!
//! Timestamps pass unchanged, also when they go backwards: their interpretation is the host's. Packets come with the
//! link-layer header of their capture; [`link::to_ethernet`] gives each the Ethernet header that the pipeline expects.
//! A frame check sequence behind a packet stays, as padding does.
//!
//! Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; the parsing of single headers and blocks is
//! `pcap-parser`'s.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::unit::Nanos;

mod input;
pub mod link;
mod pcap;
mod pcapng;
mod port;
mod writer;

use input::Input;
pub use link::LinkType;
use pcap::Pcap;
use pcapng::Pcapng;
pub use port::CapturePort;
pub use writer::PcapngWriter;

/// The most bytes of one packet that a capture may hold: libpcap's limit, 256 KiB.
pub const MAX_CAPTURED: usize = 262_144;

/// Streams the packets of a capture file.
#[derive(Debug)]
pub struct Reader<R: Read = File> {
    input: Input<R>,
    format: Format,
    records: u64,
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl Reader<File> {
    /// Opens the capture file at `path`.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader<File>, CaptureError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Reader::over(name, file),
            Err(error) => Err(CaptureError { file: name, offset: 0, problem: Problem::Input(error) }),
        }
    }
}

impl<R: Read> Reader<R> {
    /// Reads a capture from `source`, called `name` in errors. The source is buffered here.
    pub fn over(name: impl Into<String>, source: R) -> Result<Reader<R>, CaptureError> {
        let mut input = Input::new(name.into(), BufReader::with_capacity(1 << 16, source));
        input.begin();
        if !input.read(4)? {
            return Err(input.error(Problem::HeaderCut));
        }
        let format = if input.record() == pcapng::SECTION_HEADER.to_le_bytes() {
            Format::Pcapng(Pcapng::open(&mut input)?)
        } else {
            Format::Pcap(Pcap::open(&mut input)?)
        };
        Ok(Reader { input, format, records: 0 })
    }

    /// The next packet, or `None` at the end of the file or where it was cut short.
    ///
    /// After an error that concerns one packet, such as [`Problem::UnsupportedLink`] in a pcapng file, the
    /// next call goes on behind it; after any other there are no more.
    // Not an `Iterator`: a record borrows the reader's buffer until the next is asked for.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        let record = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.input)?,
            Format::Pcapng(pcapng) => pcapng.next(&mut self.input)?,
        };
        Ok(record.map(|record| {
            self.records += 1;
            Record { number: self.records, ..record }
        }))
    }

    /// The file, as it was given.
    pub fn file(&self) -> &str {
        self.input.file()
    }

    /// Offset of an incomplete last record, known once [`next`](Reader::next) returned `None`.
    pub fn cut_short(&self) -> Option<CutShort> {
        self.input.cut_short()
    }

    /// The interfaces met so far, in file order; [`Record::interface`] is an index into them. A pcap file
    /// has one, without a name.
    pub fn interfaces(&self) -> &[Interface] {
        match &self.format {
            Format::Pcap(pcap) => pcap.interfaces(),
            Format::Pcapng(pcapng) => pcapng.interfaces(),
        }
    }
}

/// One captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time of capture, since 1970. A pcapng simple packet block has none and gets the time of the record before it.
    pub at: Nanos,
    /// Its place in the file, the first being 1, as Wireshark counts.
    pub number: u64,
    /// The interface, as an index into [`Reader::interfaces`]: unique in the whole file, all sections.
    pub interface: usize,
    /// Link type of the bytes: the header that they begin with.
    pub link: LinkType,
    /// The bytes that were captured.
    pub bytes: &'a [u8],
    /// Length of the packet on the wire, in bytes; more than was captured if a snap length cut it.
    pub original_len: u32,
    /// The packet's comment, the first if there are several (pcapng `opt_comment`).
    pub comment: Option<Cow<'a, str>>,
}

impl<'a> Record<'a> {
    /// A whole Ethernet frame at interface 0, without a comment.
    pub fn new(at: Nanos, bytes: &'a [u8]) -> Record<'a> {
        let original_len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Record { at, number: 0, interface: 0, link: LinkType::ETHERNET, bytes, original_len, comment: None }
    }

    /// True if the capture holds less of the packet than was on the wire.
    pub fn is_cut(&self) -> bool {
        self.bytes.len() < self.original_len as usize
    }
}

/// An interface that a capture was made on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, where the file tells it; cut to 255 bytes.
    pub name: Option<String>,
    /// Link type of its packets; possibly an unsupported one.
    pub link: LinkType,
}

/// Incomplete record at which a capture breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutShort {
    /// Offset of the incomplete record, in bytes from the start of the file.
    pub offset: u64,
    /// Bytes of the incomplete record that are present.
    pub present: u64,
}

impl fmt::Display for CutShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cut short in the record at byte {}, of which {} bytes are there",
            self.offset, self.present
        )
    }
}

/// A capture could not be read or written.
#[derive(Debug, thiserror::Error)]
pub struct CaptureError {
    /// The file.
    pub file: String,
    /// Offset of the record or block in question, in bytes from the start of the file.
    pub offset: u64,
    /// Defect of the file, or error of the system.
    pub problem: Problem,
}

/// Defect of a capture file, or error of the system.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// Error of the system on opening or reading the file.
    Input(io::Error),
    /// Error of the system on creating or writing the file.
    Output(io::Error),
    /// Unknown magic number, these bytes: neither pcap nor pcapng.
    BadMagic([u8; 4]),
    /// The file ends within its file header.
    HeaderCut,
    /// Length field of a record or block above `limit`, the greatest of any sound one.
    Oversize {
        /// Length claimed, in bytes.
        length: u64,
        /// Greatest length allowed, in bytes.
        limit: u64,
    },
    /// Block of this name that contradicts itself.
    Malformed(&'static str),
    /// Link type that cannot be read.
    UnsupportedLink(LinkType),
    /// Interface number that no interface block of the section described.
    NoInterface(u32),
    /// Limit on the number of interfaces, exceeded.
    TooManyInterfaces(usize),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file)?;
        match &self.problem {
            Problem::Input(error) => write!(f, "could not read: {error}"),
            Problem::Output(error) => write!(f, "could not write: {error}"),
            Problem::BadMagic(magic) => {
                let [a, b, c, d] = magic;
                write!(f, "not a pcap or pcapng file: it begins with {a:02x} {b:02x} {c:02x} {d:02x}")?;
                match magic {
                    [0x1f, 0x8b, ..] => write!(f, " (gzip: unpack it first)"),
                    [0x28, 0xb5, 0x2f, 0xfd] => write!(f, " (zstd: unpack it first)"),
                    [0x04, 0x22, 0x4d, 0x18] => write!(f, " (lz4: unpack it first)"),
                    b"snoo" => write!(f, " (snoop: convert it with editcap)"),
                    _ => Ok(()),
                }
            }
            Problem::HeaderCut => write!(f, "ends in the middle of its file header"),
            Problem::Oversize { length, limit } => write!(
                f,
                "the record at byte {} claims {length} bytes, more than the {limit} that are possible",
                self.offset
            ),
            Problem::Malformed(block) => write!(f, "the {block} at byte {} contradicts itself", self.offset),
            Problem::UnsupportedLink(link) => {
                write!(
                    f,
                    "packets of {link} cannot be read; Ethernet, raw IP, Linux cooked, loopback and ATM (RFC 1483, SunATM, ERF) can"
                )
            }
            Problem::NoInterface(index) => {
                write!(
                    f,
                    "the packet at byte {} is of interface {index}, which nothing describes",
                    self.offset
                )
            }
            Problem::TooManyInterfaces(limit) => write!(f, "describes more than {limit} interfaces"),
        }
    }
}

#[cfg(test)]
mod real;
#[cfg(test)]
mod tests;
