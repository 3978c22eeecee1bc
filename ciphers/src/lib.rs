//! Ciphers and digests for measuring, never for protecting: nothing here is safe from timing attacks.
//!
//! They are the ten of Yin, Tan et al., "Adding Security to Network via Network Processors", with the rounds and tables
//! of its table 1, one file each of the same shape. Each is generic over the [`Machine`](machine::Machine) that it runs
//! on. On [`Native`](machine::Native) words are [`u32`] and the code is plain. On [`Counting`](ledger::Counting) each
//! operation accounts for itself: instructions by kind, references to memory as they are issued and waited for,
//! branches, and the size of the code. Nothing is annotated by hand.
//!
//! The study's steps of optimisation are parameters of the one code, see [`plan`]. The cost of each operation, with its
//! source, is in [`word`]. Expanding keys is accounted for nowhere: it is done once per key, not per packet.
//!
//! To add a cipher: one file, and one line in [`ALL`].

use tally::{Region, Tally};

pub use measure::{Mix, Report};
pub use plan::Optimisation;

pub mod aes;
pub mod block;
pub mod blowfish;
pub mod des;
pub mod hash;
pub mod idea;
pub mod ledger;
pub mod machine;
pub mod md5;
mod measure;
mod pi;
pub mod plan;
pub mod rc4;
pub mod rc5;
pub mod rc6;
pub mod seal;
pub mod sha1;
pub mod stream;
pub mod word;

/// Every cipher and digest, in the order of the study's table 1.
pub static ALL: [&Cipher; 10] = [
    &des::CIPHER,
    &aes::CIPHER,
    &idea::CIPHER,
    &rc5::CIPHER,
    &rc6::CIPHER,
    &blowfish::CIPHER,
    &rc4::CIPHER,
    &seal::CIPHER,
    &md5::CIPHER,
    &sha1::CIPHER,
];

/// Other code for ciphers of [`ALL`], to be measured beside them.
pub static VARIANTS: [&Cipher; 1] = [&des::TEXTBOOK];

/// A cipher or digest that can be measured.
#[derive(Debug)]
pub struct Cipher {
    /// Properties and tables.
    pub about: About,
    run: measure::Run,
}

impl Cipher {
    /// Processes `text` as an engine would, with code optimised to the given step, and reports the account to `tally`.
    /// Ciphers encrypt `text` in place, as far as there are whole blocks, block ciphers chained (CBC) from a block of
    /// zeros; hash functions read and pad `text`, and leave it unchanged.
    ///
    /// Text lies in [`Region::Frame`] from byte 0, tables in [`Region::CipherTable`], expanded keys in
    /// [`Region::CipherKey`].
    ///
    /// # Errors
    ///
    /// [`KeyLength`] if there is no such key. Hash functions ignore the key.
    pub fn measure(
        &self,
        optimisation: Optimisation,
        key: &[u8],
        text: &mut [u8],
        tally: &mut dyn Tally,
    ) -> Result<Report, KeyLength> {
        measure::measure(self.run, optimisation, key, text, tally)
    }
}

/// Properties of a cipher or digest: its row in the study's table 1, and its tables.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Name, in lower case.
    pub name: &'static str,
    /// Block cipher, stream cipher or hash function.
    pub kind: Kind,
    /// Bits of a block; none for stream ciphers.
    pub block_bits: Option<u32>,
    /// Rounds, as the study counts them; none for RC4.
    pub rounds: Option<u32>,
    /// Bytes of the key to measure with.
    pub key_bytes: usize,
    /// Tables and expanded keys.
    pub tables: &'static [TableAbout],
}

/// Kind of algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A block cipher.
    Block,
    /// A stream cipher.
    Stream,
    /// A hash function.
    Hash,
}

/// A table of a cipher, or an expanded key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableAbout {
    /// Name of the table.
    pub name: &'static str,
    /// Region of the table: [`Region::CipherTable`] if looked up by data or large, [`Region::CipherKey`] for subkeys,
    /// which are read in order.
    pub region: Region,
    /// Flows that share the table.
    pub scope: Scope,
    /// Offset in the region, in bytes.
    pub at: usize,
    /// Size, in bytes.
    pub bytes: usize,
    /// Size with each entry in a word of its own ([`plan::Entries::Aligned`]), in bytes.
    pub aligned_bytes: usize,
    /// Counting of the table in the study's table 1.
    pub published: Published,
}

/// Flows that share a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All: the table is the same whatever the key.
    Constant,
    /// One: the table depends on its key, or is its state.
    Flow,
}

/// Counting of a table's bytes in the study's table 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Counted.
    Counted,
    /// Left out.
    LeftOut,
}

/// Memory recommended for the data of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// The engine's own memory.
    Local,
    /// The on-chip memory that engines share.
    Scratch,
    /// SRAM.
    Sram,
    /// DRAM.
    Dram,
}

/// Bytes of an IXP2800 engine's local memory: 640 words (Hardware Reference Manual, 2.3.4.4).
pub const LOCAL_MEMORY: usize = 2560;

impl About {
    /// Bytes of tables as the study's table 1 counts them.
    pub fn table_bytes(&self) -> usize {
        let counted = self.tables.iter().filter(|table| table.published == Published::Counted);
        counted.map(|table| table.bytes).sum()
    }

    /// Bytes that the tables of a region take at a step of optimisation for so many flows: constant ones once, keys and state for each.
    pub fn region_bytes(&self, region: Region, optimisation: Optimisation, flows: usize) -> usize {
        let aligned = optimisation.plan().entries == plan::Entries::Aligned;
        let tables = self.tables.iter().filter(|table| table.region == region);
        let bytes = tables.map(|table| {
            let copies = if table.scope == Scope::Constant { 1 } else { flows };
            copies * if aligned { table.aligned_bytes } else { table.bytes }
        });
        bytes.sum()
    }
}

/// Local memory of an engine, and the threads that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes; 0 where there is none.
    pub local: usize,
    /// Threads that work, each on a flow of its own.
    pub threads: usize,
}

impl Room {
    /// Local memory of an IXP2800's engine with one thread.
    pub const ONE_THREAD: Room = Room { local: LOCAL_MEMORY, threads: 1 };
}

/// Memory for a cipher's region at a step of optimisation, on a chip like the IXP2800: as the study says, and assumed
/// if it says nothing:
///
/// - text in DRAM, with the packets;
/// - tables in SRAM, until memory is optimised; then in local memory if those of all threads fit, else in scratch memory, the
///   nearest that holds them ("placed into registers and per-ME local memories as much as possible");
/// - expanded keys in local memory if those of all threads fit beside the tables there, else in scratch memory (assumed: they belong
///   to a flow, and are loaded when work on one of its packets begins; the study counts few references for the ciphers that have no
///   other tables). Tables go first, for they are referred to more often.
///
/// A mapping may do otherwise, and place a region by parts.
pub fn home(about: &About, region: Region, optimisation: Optimisation, room: Room) -> Home {
    let bytes = |region| about.region_bytes(region, optimisation, room.threads);
    let tables = match bytes(Region::CipherTable) {
        bytes if optimisation >= Optimisation::Memory && bytes <= room.local => bytes,
        _ => 0,
    };
    match region {
        Region::CipherTable if optimisation < Optimisation::Memory => Home::Sram,
        Region::CipherTable if tables > 0 => Home::Local,
        Region::CipherKey if tables + bytes(region) <= room.local => Home::Local,
        Region::CipherKey | Region::CipherTable => Home::Scratch,
        _ => Home::Dram,
    }
}

/// A key whose length, in bytes, the cipher does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cipher takes no key of {0} bytes")]
pub struct KeyLength(pub usize);
