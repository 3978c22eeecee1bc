//! ATM virtual channels: a PDU under way goes on where its interface keeps its channel and the length of its longest PDU; of others the
//! cells are lost, and with them one PDU.

use tally::Region;

use super::{Applying, Part, Plan, Reload};
use crate::channel::Channels;
use crate::shard::{Shard, ShardError};
use crate::tables::Tables;

/// AAL5 PDUs under way.
pub(super) struct Pdus;

/// Reload of channels.
struct ChannelsPlan {
    channels: Channels,
    /// Places of the same channels in the old tables.
    were: Vec<Option<u16>>,
}

impl Part for Pdus {
    fn name(&self) -> &'static str {
        "channels"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        let Reload { old, new, renumbering, .. } = reload;
        let same = |place: usize, was: u16| {
            let (now, before) = (new.interfaces.get(place)?, old.interfaces.get(usize::from(was))?);
            let is_same = now.channel == before.channel && now.longest_pdu() == before.longest_pdu();
            is_same.then_some(was)
        };
        let were = renumbering.interfaces_were.iter().enumerate();
        let were = were.map(|(place, was)| same(place, (*was)?)).collect();
        Ok(Box::new(ChannelsPlan { channels: Channels::new(new), were }))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        size_of::<Channels>() + shard.channels.memory_bytes()
    }

    /// The cells of a PDU under way lie where frames do.
    fn regions(&self, _: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        Vec::new()
    }
}

impl Plan for ChannelsPlan {
    fn apply(&mut self, shard: &mut Shard, _: &mut Applying<'_>) {
        self.channels.continue_from(&mut shard.channels, &self.were);
        std::mem::swap(&mut shard.channels, &mut self.channels);
    }
}
