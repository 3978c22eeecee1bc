//! Numbers that are zero in most replays, and worth a sentence where they are not.

use serde::{Deserialize, Serialize};

use crate::number::count;

/// Numbers of frames and flows that are worth a remark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remarks {
    /// Fragments held at the end.
    pub held: u64,
    /// Frames sent beyond those that came in.
    pub parts_sent: u64,
    /// Further fragments dropped.
    pub parts_lost: u64,
    /// Messages that helpers have not read.
    pub helper_unread: u64,
    /// Flows ended early, to make room.
    pub evicted: u64,
}

impl Remarks {
    /// Sum of two replays' numbers.
    pub(crate) fn plus(self, other: Remarks) -> Remarks {
        Remarks {
            held: self.held + other.held,
            parts_sent: self.parts_sent + other.parts_sent,
            parts_lost: self.parts_lost + other.parts_lost,
            helper_unread: self.helper_unread + other.helper_unread,
            evicted: self.evicted + other.evicted,
        }
    }

    /// Remarks, sentences without a full stop.
    pub fn notes(self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.held > 0 {
            let one = "fragment waits for the first of its datagram";
            notes.push(count(self.held, one, "fragments wait for the first of their datagrams"));
        }
        if self.parts_sent > 0 {
            let frames = count(self.parts_sent, "frame was", "frames were");
            notes.push(format!(
                "{frames} sent beyond those that came in: further fragments of packets too large for their way out, or what the gateway sends by \
                 itself"
            ));
        }
        if self.parts_lost > 0 {
            let parts = count(self.parts_lost, "further fragment was", "further fragments were");
            notes
                .push(format!("{parts} dropped, for want of room in a queue: no packet is counted for them"));
        }
        if self.helper_unread > 0 {
            let messages = count(self.helper_unread, "message", "messages");
            notes.push(format!(
                "{messages} of connections with a helper passed as they were: malformed, in fragments, or more than the helper reads"
            ));
        }
        if self.evicted > 0 {
            let flows = count(self.evicted, "flow", "flows");
            notes.push(format!("the flow table was full: {flows} ended early to make room"));
        }
        notes
    }
}
