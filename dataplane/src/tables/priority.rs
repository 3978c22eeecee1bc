//! Priorities in the VLAN tags of frames sent (IEEE 802.1Q).

use policy::model::{Colour, Interface, PriorityTag};
use wire::vlan::{DropEligible, Priority};
use wire::{Dscp, Pcp};

/// Priorities of the frames of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priorities {
    /// Priority code point for each DiffServ code point.
    code_points: [Pcp; 64],
    /// Use of the drop eligible indicator: [`DropEligible::Yes`] sets it for packets that are yellow or red.
    eligible: DropEligible,
    /// Tags of VLAN 0 on frames that would have none.
    pub(crate) tag: PriorityTag,
}

impl Default for Priorities {
    fn default() -> Priorities {
        Priorities { code_points: [Pcp::default(); 64], eligible: DropEligible::No, tag: PriorityTag::No }
    }
}

impl Priorities {
    /// Priorities as a policy has them for an interface.
    pub(crate) fn of(interface: &Interface) -> Priorities {
        let code_point = |dscp| Dscp::new(dscp as u8).map_or(Pcp::default(), |dscp| interface.pcp.get(dscp));
        Priorities {
            code_points: std::array::from_fn(code_point),
            eligible: interface.dei,
            tag: interface.priority_tag,
        }
    }

    /// Priority of a packet that leaves with that code point and colour; `marked` is the priority code point of its class, if any.
    pub(crate) fn of_packet(&self, dscp: Dscp, colour: Colour, marked: Option<Pcp>) -> Priority {
        let code_point = marked.unwrap_or(self.code_points[usize::from(dscp.value()) % 64]);
        let eligible = if colour == Colour::Green { DropEligible::No } else { self.eligible };
        Priority::new(code_point, eligible)
    }
}
