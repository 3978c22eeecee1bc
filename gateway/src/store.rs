//! State file of flows and translations, for a restart without loss of connections.
//!
//! The file is a header line, then blocks: length, CRC-32 and payload in postcard encoding. The first block is a
//! [`Stamp`] of time and occasion, the last holds the number of items. Only a complete file with intact blocks is
//! imported: [`check`] validates it before [`read`] returns the first item. A file is written atomically: under a
//! temporary name, synced, then renamed. Files of the version before are read, too.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dataplane::state::{Item, Names};
use rustix::fs::OFlags;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use wire::Nanos;

mod former;
mod stamp;
#[cfg(test)]
mod tests;

pub use stamp::{Occasion, Stamp};

/// Header line, with the version of the block format.
pub(crate) const HEAD: &[u8] = b"wirerate state 8\n";

/// Items of a block, at most. Bounds the memory for decoding: an item is far larger in memory than in a file.
pub const BLOCK_ITEMS: usize = 1024;

/// Size of a block in bytes, at most: names of the largest policies.
const LONGEST: u32 = 64 << 20;

/// Block of the file.
#[derive(Serialize, Deserialize)]
enum Block {
    /// Time and occasion of the file: always the first block, and only there.
    Stamp(Stamp),
    /// Names that indices in later items refer to.
    Names(Names),
    /// Items of state.
    Items(#[serde(deserialize_with = "block_items")] Vec<Item>),
    /// End of the file, with the number of items.
    End(u64),
}

/// Deserializes [`BLOCK_ITEMS`] items at most.
pub(crate) fn block_items<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct Bounded<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {BLOCK_ITEMS} items")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = seq.next_element()? {
                if items.len() == BLOCK_ITEMS {
                    return Err(A::Error::invalid_length(BLOCK_ITEMS + 1, &self));
                }
                items.push(item);
            }
            Ok(items)
        }
    }

    from.deserialize_seq(Bounded(PhantomData))
}

/// Entry read from a state file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // one at a time, most of them items
pub enum Entry {
    /// Time and occasion of the file: always the first entry, and only there.
    Stamp(Stamp),
    /// Names that indices in later items refer to.
    Names(Names),
    /// Item of state.
    Item(Item),
}

/// Reason for not reading or writing a state file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Error of the system.
    #[error("could not {operation} the state: {error}")]
    System {
        /// Operation that failed.
        operation: &'static str,
        /// Error.
        error: io::Error,
    },
    /// Not a state file, or one of another version.
    #[error("it is no state file of this version")]
    Foreign,
    /// Truncated or altered file.
    #[error("it is damaged or was not written to its end")]
    Damaged,
    /// Path of a directory, a FIFO or a device.
    #[error("it is no regular file")]
    NoFile,
    /// State saved on request, while the gateway went on.
    #[error(
        "it is not of a gateway's clean end, but was saved while one went on; `wirerate load` takes it in"
    )]
    Saved,
    /// Age unknown: written before another boot, at a time of day in the future.
    #[error(
        "its age cannot be told: it was written before the last boot, and the clock has been set back since"
    )]
    Ageless,
}

fn system(operation: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::System { operation, error }
}

/// Writer of a state file, block by block.
pub struct Writer<W: Write> {
    out: W,
    items: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a state file with a stamp.
    ///
    /// # Errors
    /// Failed write.
    pub fn new(mut out: W, stamp: Stamp) -> io::Result<Writer<W>> {
        out.write_all(HEAD)?;
        let mut writer = Writer { out, items: 0 };
        writer.block(&Block::Stamp(stamp))?;
        Ok(writer)
    }

    /// Writes the names that indices in the following items refer to.
    ///
    /// # Errors
    /// Failed write.
    pub fn names(&mut self, names: Names) -> io::Result<()> {
        self.block(&Block::Names(names))
    }

    /// Writes items, at best [`BLOCK_ITEMS`] at once.
    ///
    /// # Errors
    /// Failed write.
    pub fn items(&mut self, items: Vec<Item>) -> io::Result<()> {
        self.items += items.len() as u64;
        items.chunks(BLOCK_ITEMS).try_for_each(|items| self.block(&Block::Items(items.to_vec())))
    }

    /// Writes the end of the file, and returns the underlying writer.
    ///
    /// # Errors
    /// Failed write.
    pub fn end(mut self) -> io::Result<W> {
        self.block(&Block::End(self.items))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn block(&mut self, block: &Block) -> io::Result<()> {
        let bytes = postcard::to_stdvec(block).map_err(io::Error::other)?;
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or_else(|| io::Error::other("a block is too long"))?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&crc32fast::hash(&bytes).to_le_bytes())?;
        self.out.write_all(&bytes)
    }
}

impl Writer<Vec<u8>> {
    /// Takes the bytes written since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

/// Writes a file atomically, for its owner alone; `fill` writes the content.
///
/// # Errors
/// Failed write; an existing file is then unchanged.
pub fn write_file(
    path: &Path,
    stamp: Stamp,
    fill: impl FnOnce(&mut Writer<BufWriter<&mut File>>) -> io::Result<()>,
) -> Result<u64, StoreError> {
    replace(path, |file| {
        let mut writer = Writer::new(BufWriter::new(file), stamp).map_err(system("write"))?;
        fill(&mut writer).map_err(system("write"))?;
        let items = writer.items;
        writer.end().map_err(system("write"))?;
        Ok(items)
    })
}

/// Content of a state file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Flows, with their translations.
    pub flows: u64,
    /// Token debts under rates of rules and of meters.
    pub rates: u64,
}

/// Saves a state received from elsewhere, in the format of [`Writer`], to a file, atomically; `fill` supplies the
/// bytes.
///
/// # Errors
/// Errors of `fill`; failed write; bytes that are not a complete state. An existing file is then unchanged.
pub fn receive_file<E: From<StoreError>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> Result<(), E>,
) -> Result<Contents, E> {
    replace(path, |file| {
        let mut out = BufWriter::new(file);
        fill(&mut out)?;
        let file = out.into_inner().map_err(|error| system("write")(error.into_error()))?;
        file.rewind().map_err(system("read"))?;
        Ok(contents(BufReader::new(file))?)
    })
}

/// Reads a whole state, and counts its content.
///
/// # Errors
/// Truncated, altered or not a state.
pub fn contents(input: impl Read) -> Result<Contents, StoreError> {
    let mut contents = Contents::default();
    read(input, |entry| match entry {
        Entry::Item(Item::Flow(_)) => contents.flows += 1,
        Entry::Item(Item::Debt(_) | Item::Meter(_)) => contents.rates += 1,
        Entry::Item(Item::Own(_) | Item::Sa(_) | Item::Element(_) | Item::PortMapping(_))
        | Entry::Names(_)
        | Entry::Stamp(_) => {}
    })?;
    Ok(contents)
}

/// Replaces the file at `path` by another, once that is complete and synced.
pub(crate) fn replace<T, E: From<StoreError>>(
    path: &Path,
    fill: impl FnOnce(&mut File) -> Result<T, E>,
) -> Result<T, E> {
    if fs::metadata(path).is_ok_and(|known| !known.is_file()) {
        return Err(StoreError::NoFile.into());
    }
    let unfinished = unfinished(path);
    let outcome = (|| {
        discard_unfinished(path).map_err(system("write"))?;
        let mut options = OpenOptions::new();
        // Whom hosts talk to is nobody else's business.
        options.read(true).write(true).create_new(true).mode(0o600);
        let mut file = options.open(&unfinished).map_err(system("write"))?;
        let given = fill(&mut file)?;
        file.sync_all().map_err(system("write"))?;
        fs::rename(&unfinished, path).map_err(system("rename"))?;
        // The name, too, is to be on the disk.
        sync_directory(path).map_err(system("write"))?;
        Ok(given)
    })();
    if outcome.is_err() {
        // It may not even have been made.
        let _ = fs::remove_file(&unfinished);
    }
    outcome
}

/// Removes the unfinished temporary file of `path` that a killed process has left.
///
/// # Errors
/// Error of the system.
pub fn discard_unfinished(path: &Path) -> io::Result<()> {
    match fs::remove_file(unfinished(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Temporary name of a file until it is complete.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// Validates a whole state, and returns the number of items.
///
/// # Errors
/// Truncated, altered or not a state.
pub fn check(input: impl Read) -> Result<u64, StoreError> {
    read(input, |_| {})
}

/// Passes the names and items of a state to `give`. Damage is detected only where it occurs: call [`check`] first.
///
/// # Errors
/// Truncated, altered or not a state.
pub fn read(mut input: impl Read, mut give: impl FnMut(Entry)) -> Result<u64, StoreError> {
    let mut head = [0; HEAD.len()];
    input.read_exact(&mut head).map_err(|error| match cut(error) {
        StoreError::Damaged => StoreError::Foreign,
        error => error,
    })?;
    let is_former = head == former::HEAD;
    if head != HEAD && !is_former {
        return Err(StoreError::Foreign);
    }
    let mut count = 0;
    let mut bytes = Vec::new();
    let mut is_first = true;
    loop {
        let mut word = [0; 4];
        input.read_exact(&mut word).map_err(cut)?;
        let length = u32::from_le_bytes(word);
        input.read_exact(&mut word).map_err(cut)?;
        let sum = u32::from_le_bytes(word);
        if length > LONGEST {
            return Err(StoreError::Damaged);
        }
        bytes.clear();
        // Not all at once: a length that is wrong must not take memory that the file does not fill.
        let got = input.by_ref().take(length.into()).read_to_end(&mut bytes).map_err(cut)?;
        if got != length as usize || crc32fast::hash(&bytes) != sum {
            return Err(StoreError::Damaged);
        }
        let block =
            if is_former { whole::<former::FormerBlock>(&bytes)?.into() } else { whole::<Block>(&bytes)? };
        if is_first != matches!(block, Block::Stamp(_)) {
            return Err(StoreError::Damaged);
        }
        is_first = false;
        match block {
            Block::Stamp(stamp) => give(Entry::Stamp(stamp)),
            Block::Names(told) => give(Entry::Names(told)),
            Block::Items(items) => {
                count += items.len() as u64;
                items.into_iter().for_each(|item| give(Entry::Item(item)));
            }
            Block::End(told) if told == count => return Ok(count),
            Block::End(_) => return Err(StoreError::Damaged),
        }
    }
}

/// Decodes a block that has all bytes.
fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, StoreError> {
    match postcard::take_from_bytes(bytes) {
        Ok((block, [])) => Ok(block),
        Ok(_) | Err(_) => Err(StoreError::Damaged),
    }
}

fn cut(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => StoreError::Damaged,
        _ => StoreError::System { operation: "read", error },
    }
}

/// State file removed from its path, to be read once.
#[derive(Debug)]
pub struct Taken {
    /// Content of the file, validated.
    pub file: BufReader<File>,
    /// Time since the file was written.
    pub age: Nanos,
}

/// Takes the state file of a gateway's clean end and removes it, as a second import would revive flows that have ended
/// since. `None` if there is no file.
///
/// # Errors
/// See [`check`]; not of a clean end ([`StoreError::Saved`]); age unknown ([`StoreError::Ageless`]); failure to remove
/// the file. The file then stays in place.
pub fn take(path: &Path, now: &Stamp) -> Result<Option<Taken>, StoreError> {
    // Opening a FIFO would wait for a writer, and a device is no file.
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(known) if !known.is_file() => return Err(StoreError::NoFile),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    let mut file = BufReader::new(opened.map_err(system("open"))?);
    // The same file is read that was checked, whatever is given its name meanwhile.
    let mut stamp = None;
    read(&mut file, |entry| {
        if let Entry::Stamp(found) = entry {
            stamp = Some(found);
        }
    })?;
    let stamp = stamp.ok_or(StoreError::Damaged)?;
    if stamp.occasion != Occasion::End {
        return Err(StoreError::Saved);
    }
    let age = stamp.age(now).ok_or(StoreError::Ageless)?;
    fs::remove_file(path).and_then(|()| sync_directory(path)).map_err(system("remove"))?;
    file.rewind().map_err(system("read"))?;
    Ok(Some(Taken { file, age }))
}

/// Syncs the directory of a file.
fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
