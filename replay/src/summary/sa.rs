//! Security associations of a replay: what they carried and refused.

use dataplane::Replay;
use dataplane::sa::{Bound, PathNews, SaEvent, SaNews, SaView};
use serde_json::{Map, Value, json};
use wire::Nanos;

/// Security association, with the name of its tunnel.
#[derive(Clone, Debug)]
pub struct SaRow {
    /// Name of the tunnel.
    pub tunnel: String,
    /// The association.
    pub view: SaView,
}

/// All security associations, in the order of tunnels.
pub(super) fn sas(replay: &Replay, end: Nanos) -> Vec<SaRow> {
    let views = replay.shard.sas.views(end).into_iter();
    let row = |view: SaView| SaRow { tunnel: view.tunnel_name(&replay.tables).to_owned(), view };
    views.map(row).collect()
}

/// Notes on lifetimes and ways to peers: what has been reached or learnt, and when.
pub(super) fn notes(replay: &mut Replay, start: Nanos) -> Vec<String> {
    let events: Vec<_> = replay.shard.sas.take_events().collect();
    let lost = replay.shard.sas.events_lost();
    let mut notes: Vec<String> = events
        .into_iter()
        .filter_map(|SaEvent { at, tunnel, news }| {
            let (after, tunnel) = (at.since(start), replay.tables.tunnel_name(tunnel));
            Some(match news {
                // They are counted in the table.
                SaNews::Replayed { .. } | SaNews::Missing(_) | SaNews::Fallback(_) => return None,
                SaNews::Bound { direction, spi, bound } => {
                    let (bound, direction) = (bound.name(), direction.name());
                    format!("the {bound} lifetime of the security association {spi:#x} ({direction}) was reached {after} after the start")
                }
                SaNews::Path(PathNews::Peer { peer, .. }) => {
                    format!("the peer of tunnel \"{tunnel}\" was at {peer} from {after} after the start on")
                }
                SaNews::Path(PathNews::Mtu(mtu)) => {
                    format!("the path of tunnel \"{tunnel}\" had room for inner packets of {mtu} bytes from {after} after the start on")
                }
            })
        })
        .collect();
    if lost > 0 {
        notes.push(format!("{lost} further news of tunnels are not listed"));
    }
    notes
}

impl SaRow {
    pub(super) fn to_json(&self) -> Value {
        let SaRow { tunnel, view } = self;
        let mut object = Map::new();
        object.insert("tunnel".to_owned(), tunnel.as_str().into());
        object.insert("direction".to_owned(), view.direction.name().into());
        object.insert("spi".to_owned(), view.spi.into());
        object.insert("algorithm".to_owned(), view.suite.algorithm().into());
        object.insert("auth".to_owned(), view.suite.auth().into());
        object.insert("reached".to_owned(), view.reached.map(Bound::name).into());
        object.extend(view.counters().map(|(name, count)| (name.replace('-', "_"), count.into())));
        json!(object)
    }
}
