//! Version 7 of the state file, which knew no dynamic sets: names have none, and there are no elements.

use dataplane::state::{Item, Names};
use serde::Deserialize;

use super::{Block, Stamp, block_items};

/// Header line.
pub(super) const HEAD: &[u8] = b"wirerate state 7\n";

/// Block of the file.
#[derive(Deserialize)]
pub(super) enum FormerBlock {
    Stamp(Stamp),
    Names(FormerNames),
    Items(#[serde(deserialize_with = "block_items")] Vec<Item>),
    End(u64),
}

/// Names that indices in later items refer to.
#[derive(Deserialize)]
pub(super) struct FormerNames {
    interfaces: Vec<String>,
    rules: Vec<String>,
    destinations: Vec<String>,
    sources: Vec<String>,
    meters: Vec<String>,
}

impl From<FormerBlock> for Block {
    fn from(block: FormerBlock) -> Block {
        match block {
            FormerBlock::Stamp(stamp) => Block::Stamp(stamp),
            FormerBlock::Names(names) => {
                let FormerNames { interfaces, rules, destinations, sources, meters } = names;
                Block::Names(Names { interfaces, rules, destinations, sources, meters, sets: Vec::new() })
            }
            FormerBlock::Items(items) => Block::Items(items),
            FormerBlock::End(count) => Block::End(count),
        }
    }
}
