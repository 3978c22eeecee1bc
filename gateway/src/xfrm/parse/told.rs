//! Messages of Linux itself: events and lists, read as the requests that would make the same change.

use netlink_packet_core::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN};

use super::{Fields, Refusal, direction, each, policy_id, request, sa_info, split_first};
use crate::xfrm::message::{Bound, Header, PolicyId, Request, attribute, kind};

/// Bytes of a policy in a message (`xfrm_userpolicy_info`).
const POLICY: usize = 168;

/// Message of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Change of the databases, as the request for it; an object of a list, as a request to add it.
    Change(Request),
    /// End of a list, or of a request: 0 or a negative error number.
    Answer(i32),
    /// Loss of messages, or of the order of a list.
    Lost,
    /// Message that tells of no change.
    Other,
}

/// Returns the messages of a datagram, in order, each with the sequence number of the request that it answers.
pub fn told(datagram: &[u8]) -> Messages<'_> {
    Messages { rest: datagram }
}

/// Iterator over messages of Linux.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl Iterator for Messages<'_> {
    type Item = (u32, Told);

    fn next(&mut self) -> Option<(u32, Told)> {
        let (header, body) = split_first(&mut self.rest)?;
        let number = || body.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
        let is_interrupted = header.flags & NLM_F_DUMP_INTR != 0;
        let told = match header.kind {
            NLMSG_OVERRUN => Told::Lost,
            // The end of a list has the flag, too, and so none is missed.
            NLMSG_DONE if is_interrupted => Told::Lost,
            NLMSG_DONE | NLMSG_ERROR => Told::Answer(number()),
            // Objects that cannot be read are none that the gateway could carry.
            _ => change(&header, body).ok().flatten().map_or(Told::Other, Told::Change),
        };
        Some((header.sequence, told))
    }
}

fn change(header: &Header, body: &[u8]) -> Result<Option<Request>, Refusal> {
    let mut fields = Fields(body);
    Ok(Some(match header.kind {
        kind::NEWSA | kind::UPDSA | kind::DELSA | kind::FLUSHSA | kind::FLUSHPOLICY => {
            request(&Header { flags: 0, ..*header }, body)?
        }
        kind::NEWPOLICY | kind::UPDPOLICY => {
            request(&Header { kind: kind::UPDPOLICY, flags: 0, ..*header }, body)?
        }
        kind::EXPIRE => {
            let info = sa_info(&mut fields)?;
            if bound(fields.byte()?) == Bound::Soft {
                return Ok(None);
            }
            Request::DeleteSa(info.name())
        }
        // By selector: the number alone is told where the request had the number alone.
        kind::DELPOLICY => {
            let id = policy_id(&mut fields)?;
            let mut whole = None;
            each(fields.0, |kind, value| {
                if kind == attribute::POLICY {
                    whole = value.first_chunk::<POLICY>().copied();
                }
                Ok(())
            })?;
            let named = whole.map(|whole| named(&whole)).transpose()?;
            Request::DeletePolicy(Box::new(PolicyId {
                mark: id.mark,
                if_id: id.if_id,
                ..named.unwrap_or(id)
            }))
        }
        kind::POLEXPIRE => {
            let whole = fields.bytes::<POLICY>()?;
            let hard = fields.byte()?;
            fields.skip::<7>()?;
            if bound(hard) == Bound::Soft {
                return Ok(None);
            }
            let mut id = named(&whole)?;
            each(fields.0, |kind, value| {
                let mut fields = Fields(value);
                match kind {
                    attribute::MARK => id.mark = Some(super::mark(&mut fields)?),
                    attribute::IF_ID => id.if_id = Some(fields.word()?),
                    _ => {}
                }
                Ok(())
            })?;
            Request::DeletePolicy(Box::new(id))
        }
        _ => return Ok(None),
    }))
}

fn bound(hard: u8) -> Bound {
    if hard == 0 { Bound::Soft } else { Bound::Hard }
}

/// Name of a policy by its selector.
fn named(whole: &[u8; POLICY]) -> Result<PolicyId, Refusal> {
    let mut fields = Fields(whole);
    let selector = super::selector(&mut fields)?;
    super::lifetimes(&mut fields)?;
    super::used(&mut fields)?;
    // Priority and number.
    fields.skip::<8>()?;
    Ok(PolicyId { selector, index: 0, direction: direction(fields.byte()?)?, mark: None, if_id: None })
}

#[cfg(test)]
mod tests;
