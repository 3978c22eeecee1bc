//! Any bytes as datagrams on the XFRM socket, and as Linux's own.
//!
//! Beyond not crashing: what is read and written is read the same again, databases stay within their bounds, lists end and hold
//! each association once, and the data plane is told of an association's end exactly where it was told of its beginning.
//!
//! The first two bytes of each datagram are its length, the third the seconds that pass before it.
#![no_main]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway::xfrm::association::Association;
use gateway::xfrm::message::{Header, Request, SaFilter, kind};
use gateway::xfrm::parse::told::told;
use gateway::xfrm::parse::{Refusal, parse};
use gateway::xfrm::state::{Answer, Carrier, Database, Limits, Moment, Protected, Usage};
use gateway::xfrm::write::{self, KeyUse};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { sas: 16, policies: 8 };

/// Data plane that knows what it carries.
#[derive(Default)]
struct Carried(BTreeSet<(IpAddr, u32)>);

impl Carrier for Carried {
    fn add(&mut self, association: &Arc<Association>, _: &Protected) -> Result<(), Refusal> {
        assert!(self.0.insert((association.destination, association.spi)), "added twice");
        Ok(())
    }

    fn change(
        &mut self,
        old: &Association,
        new: &Arc<Association>,
        protected: &Protected,
    ) -> Result<(), Refusal> {
        assert!(protected.packets.len() <= LIMITS.policies);
        assert_eq!((old.destination, old.spi), (new.destination, new.spi));
        assert!(self.0.contains(&(new.destination, new.spi)));
        Ok(())
    }

    fn remove(&mut self, associations: &[&Association]) {
        for association in associations {
            assert!(self.0.remove(&(association.destination, association.spi)), "removed, and never added");
        }
    }

    fn usage(&mut self, association: &Association) -> Usage {
        Usage { numbers: association.numbers, bytes: 1, packets: 1, ..Usage::default() }
    }
}

fuzz_target!(|data: &[u8]| {
    let (mut database, mut carried, mut now) = (Database::new(LIMITS), Carried::default(), Moment::default());
    let mut rest = data;
    while let Some(([low, high, seconds], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (datagram, next) = after.split_at(length);
        rest = next;
        now.elapsed += Duration::from_secs(u64::from(*seconds));
        now.wall += u64::from(*seconds);
        let mut events = Vec::new();
        database.expire(now, &mut carried, &mut events);
        // As Linux's, too: each message has a header.
        assert!(told(datagram).count() <= datagram.len() / 16);
        for (header, request) in parse(datagram) {
            match request {
                Ok(request) => {
                    same_again(&header, &request);
                    let answer = database.handle(&header, request, now, &mut carried, &mut events);
                    if let Err(refusal) = answer {
                        assert!(!refusal.words.is_empty());
                        let _ = write::acknowledgement(&header, Some(&refusal));
                    }
                }
                Err(refusal) => assert!(!refusal.words.is_empty()),
            }
        }
        assert!(database.associations() <= LIMITS.sas && database.policies().count() <= LIMITS.policies);
        assert!(carried.0.len() <= database.associations());
    }
    let header = Header { kind: kind::GETSA, flags: 0x301, ..Header::default() };
    let list = Request::ListSas(SaFilter::default());
    let answer = database.handle(&header, list, now, &mut carried, &mut Vec::new());
    let Ok(Answer::List(mut list)) = answer else { panic!("a list is not refused") };
    let mut count = 0;
    while let Some(datagram) = database.next(&mut list, now, &mut carried) {
        let mut bytes = datagram.to_vec();
        let mut at = 0;
        // Answers read as requests.
        while let Some(length) =
            bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_ne_bytes)
        {
            bytes[at + 6] |= 1;
            count += usize::from(bytes[at + 4] == 16);
            at += (length as usize).next_multiple_of(4);
        }
        for (_, request) in parse(&bytes) {
            assert!(matches!(request, Ok(Request::NewSa(_))), "{request:?}");
        }
    }
    assert_eq!(count, database.associations());
});

fn same_again(header: &Header, request: &Request) {
    let written = match request {
        Request::NewSa(sa) | Request::UpdateSa(sa) => write::sa(header, sa, KeyUse::Shown),
        Request::NewPolicy(policy) | Request::UpdatePolicy(policy) => write::policy(header, policy),
        _ => return,
    };
    let (again, request_again) = parse(&written).next().expect("it was written");
    assert_eq!((&again, request_again.as_ref()), (header, Ok(request)));
}
