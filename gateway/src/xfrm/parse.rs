//! Parser of XFRM messages: bytes to requests.
//!
//! A pure function of any bytes, which never panics. What Linux ignores is ignored: bytes behind the last whole message, messages
//! that are no requests, and attributes that are not known.

use std::fmt;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer};
use wire::esp::Secret;

use super::message::{
    AF_INET, AF_INET6, Address, Ae, Algorithm, AllocSpi, Bound, Encap, EndFilter, Errno, Header, Id,
    Lifetimes, Mark, Policy, PolicyDirection, PolicyId, PolicyInfo, Replay, ReplayEsn, Request, Sa, SaFilter,
    SaId, SaInfo, Selector, Template, Thresholds, Used, attribute, kind,
};
use crate::linux::message::{Attribute, HEADER, attributes, text};

pub mod told;

/// Templates of a policy, at most (`XFRM_MAX_DEPTH`).
const TEMPLATES: usize = 6;

/// Words of 32 bits in the bitmap of a window, at most: 65,536 numbers.
const BITMAP: usize = 65_536 / 32;

/// Bytes of a template.
const TEMPLATE: usize = 64;

/// Refusal of a request: what goes into the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Error number.
    pub errno: Errno,
    /// Reason in words, for the extended acknowledgement and the log; never of a key.
    pub words: String,
}

impl Refusal {
    /// Refusal with its reason.
    pub fn new(errno: Errno, words: impl Into<String>) -> Refusal {
        Refusal { errno, words: words.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Refusal {}

fn invalid(words: &str) -> Refusal {
    Refusal::new(Errno::INVAL, words)
}

/// Returns the requests of a datagram, in order.
pub fn parse(datagram: &[u8]) -> Requests<'_> {
    Requests { rest: datagram }
}

/// Iterator over the requests of a datagram, each with its header.
#[derive(Clone, Debug)]
pub struct Requests<'a> {
    rest: &'a [u8],
}

impl Iterator for Requests<'_> {
    type Item = (Header, Result<Request, Refusal>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (header, body) = split_first(&mut self.rest)?;
            let is_request = header.flags & NLM_F_REQUEST != 0 && header.kind >= kind::NEWSA;
            if is_request || header.kind == kind::SUBSCRIBE {
                return Some((header, request(&header, body)));
            }
        }
    }
}

/// Takes the first message off a datagram: its header, and what follows that. `None` if no whole message is left.
fn split_first<'a>(datagram: &mut &'a [u8]) -> Option<(Header, &'a [u8])> {
    let bytes = *datagram;
    let message = NetlinkBuffer::new_checked(bytes).ok()?;
    let length = message.length() as usize;
    let header = Header {
        kind: message.message_type(),
        flags: message.flags(),
        sequence: message.sequence_number(),
        port: message.port_number(),
    };
    let body = bytes.get(HEADER..length)?;
    *datagram = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    Some((header, body))
}

fn request(header: &Header, body: &[u8]) -> Result<Request, Refusal> {
    let is_list = header.flags & NLM_F_DUMP == NLM_F_DUMP;
    let mut fields = Fields(body);
    Ok(match header.kind {
        kind::SUBSCRIBE => Request::Subscribe(fields.word()?),
        kind::GETSA if is_list => Request::ListSas(filter(body)),
        kind::GETPOLICY if is_list => Request::ListPolicies,
        kind::ALLOCSPI => {
            let info = sa_info(&mut fields)?;
            let (min, max) = (fields.word()?, fields.word()?);
            Request::AllocSpi(Box::new(AllocSpi { sa: sa(info, fields.0)?, min, max }))
        }
        kind::NEWSA => Request::NewSa(Box::new(whole_sa(&mut fields)?)),
        kind::UPDSA => Request::UpdateSa(Box::new(whole_sa(&mut fields)?)),
        kind::DELSA => Request::DeleteSa(sa_id(&mut fields)?),
        kind::GETSA => Request::GetSa(sa_id(&mut fields)?),
        kind::FLUSHSA => Request::FlushSas(fields.byte()?),
        kind::NEWAE => Request::NewAe(Box::new(ae(&mut fields)?)),
        kind::GETAE => Request::GetAe(Box::new(ae(&mut fields)?)),
        kind::NEWPOLICY => Request::NewPolicy(Box::new(policy(&mut fields)?)),
        kind::UPDPOLICY => Request::UpdatePolicy(Box::new(policy(&mut fields)?)),
        kind::DELPOLICY => Request::DeletePolicy(Box::new(policy_id(&mut fields)?)),
        kind::GETPOLICY => Request::GetPolicy(Box::new(policy_id(&mut fields)?)),
        kind::FLUSHPOLICY => main_policies(body).map(|()| Request::FlushPolicies)?,
        kind::NEWSPDINFO => Request::SetThresholds(thresholds(&mut fields)?),
        kind::GETSPDINFO => fields.word().map(|_| Request::GetSpdInfo)?,
        kind::GETSADINFO => fields.word().map(|_| Request::GetSadInfo)?,
        kind::EXPIRE => expire(&mut fields)?,
        kind::MIGRATE => return Err(Refusal::new(Errno::NOPROTOOPT, "SAs are moved by DELSA and NEWSA")),
        other => return Err(invalid(&format!("no message of XFRM has type {other}"))),
    })
}

/// Fixed part of a message, read from its start.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(|| invalid("the message is cut off"))?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn skip<const N: usize>(&mut self) -> Result<(), Refusal> {
        self.bytes::<N>().map(drop)
    }

    fn byte(&mut self) -> Result<u8, Refusal> {
        self.bytes().map(|[byte]| byte)
    }

    fn half(&mut self) -> Result<u16, Refusal> {
        self.bytes().map(u16::from_ne_bytes)
    }

    fn word(&mut self) -> Result<u32, Refusal> {
        self.bytes().map(u32::from_ne_bytes)
    }

    fn long(&mut self) -> Result<u64, Refusal> {
        self.bytes().map(u64::from_ne_bytes)
    }

    /// Port, in the order of the wire.
    fn port(&mut self) -> Result<u16, Refusal> {
        self.bytes().map(u16::from_be_bytes)
    }

    fn address(&mut self) -> Result<Address, Refusal> {
        self.bytes().map(Address)
    }
}

/// Attributes by number. Bytes that are no attribute end the message, as in Linux.
fn each(bytes: &[u8], mut take: impl FnMut(u16, &[u8]) -> Result<(), Refusal>) -> Result<(), Refusal> {
    for attribute in attributes(bytes) {
        let Ok(Attribute { kind, value }) = attribute else { return Ok(()) };
        take(kind, value)?;
    }
    Ok(())
}

fn selector(fields: &mut Fields<'_>) -> Result<Selector, Refusal> {
    let read = Selector {
        destination: fields.address()?,
        source: fields.address()?,
        destination_port: [fields.port()?, fields.port()?],
        source_port: [fields.port()?, fields.port()?],
        family: fields.half()?,
        destination_len: fields.byte()?,
        source_len: fields.byte()?,
        protocol: fields.byte()?,
        interface: {
            fields.skip::<3>()?;
            fields.bytes().map(i32::from_ne_bytes)?
        },
        user: fields.word()?,
    };
    let most = match read.family {
        AF_INET => 32,
        AF_INET6 => 128,
        0 => u8::MAX,
        family => return Err(invalid(&format!("the selector is of family {family}"))),
    };
    if read.destination_len > most || read.source_len > most {
        return Err(invalid("a prefix of the selector is longer than an address"));
    }
    Ok(read)
}

fn id(fields: &mut Fields<'_>) -> Result<Id, Refusal> {
    let destination = fields.address()?;
    let spi = fields.bytes().map(u32::from_be_bytes)?;
    let protocol = fields.byte()?;
    fields.skip::<3>()?;
    Ok(Id { destination, spi, protocol })
}

fn lifetimes(fields: &mut Fields<'_>) -> Result<Lifetimes, Refusal> {
    let mut pair = || Ok::<_, Refusal>([fields.long()?, fields.long()?]);
    Ok(Lifetimes { bytes: pair()?, packets: pair()?, added: pair()?, used: pair()? })
}

fn used(fields: &mut Fields<'_>) -> Result<Used, Refusal> {
    let (bytes, packets) = (fields.long()?, fields.long()?);
    Ok(Used { bytes, packets, added: fields.long()?, first: fields.long()? })
}

fn sa_info(fields: &mut Fields<'_>) -> Result<SaInfo, Refusal> {
    let read = SaInfo {
        selector: selector(fields)?,
        id: id(fields)?,
        source: fields.address()?,
        lifetimes: lifetimes(fields)?,
        used: used(fields)?,
        failures: [fields.word()?, fields.word()?, fields.word()?],
        sequence: fields.word()?,
        reqid: fields.word()?,
        family: fields.half()?,
        mode: fields.byte()?,
        window: fields.byte()?,
        flags: fields.byte()?,
    };
    fields.skip::<7>()?;
    family(read.family)?;
    Ok(read)
}

fn family(family: u16) -> Result<(), Refusal> {
    match family {
        AF_INET | AF_INET6 => Ok(()),
        other => Err(invalid(&format!("{other} is the family of neither IPv4 nor IPv6"))),
    }
}

fn whole_sa(fields: &mut Fields<'_>) -> Result<Sa, Refusal> {
    let info = sa_info(fields)?;
    sa(info, fields.0)
}

fn sa(info: SaInfo, rest: &[u8]) -> Result<Sa, Refusal> {
    let mut sa = Sa { info, ..Sa::default() };
    each(rest, |kind, value| {
        let mut fields = Fields(value);
        match kind {
            attribute::AEAD => sa.aead = Some(algorithm(value, HasIcv::Yes)?),
            attribute::CRYPT => sa.cipher = Some(algorithm(value, HasIcv::No)?),
            attribute::AUTH_TRUNC => sa.auth = Some(algorithm(value, HasIcv::Yes)?),
            // Linux prefers the other one, which has the length of the ICV.
            attribute::AUTH if sa.auth.is_none() => sa.auth = Some(algorithm(value, HasIcv::No)?),
            attribute::COMP => {
                return Err(Refusal::new(Errno::PROTONOSUPPORT, "compression (IPComp) is not supported"));
            }
            attribute::SEC_CTX => {
                return Err(Refusal::new(Errno::OPNOTSUPP, "security contexts are not supported"));
            }
            attribute::ENCAP => {
                let kind = fields.half()?;
                let (source_port, destination_port) = (fields.port()?, fields.port()?);
                fields.skip::<2>()?;
                sa.encap = Some(Encap { kind, source_port, destination_port, original: fields.address()? });
            }
            attribute::LTIME_VAL => sa.info.used = used(&mut fields)?,
            attribute::REPLAY_VAL => sa.replay = Some(replay(&mut fields)?),
            attribute::REPLAY_ESN => sa.esn = Some(replay_esn(&mut fields)?),
            attribute::MARK => sa.mark = Some(mark(&mut fields)?),
            attribute::SET_MARK => sa.set_mark = Some(fields.word()?),
            attribute::SET_MARK_MASK => sa.set_mark_mask = Some(fields.word()?),
            attribute::TFCPAD => sa.tfc = Some(fields.word()?),
            attribute::EXTRA_FLAGS => sa.extra_flags = Some(fields.word()?),
            attribute::IF_ID => sa.if_id = Some(fields.word()?),
            attribute::SA_DIR => sa.direction = Some(fields.byte()?),
            attribute::NAT_KEEPALIVE => sa.keepalive = Some(fields.word()?),
            attribute::SA_PCPU => sa.cpu = Some(fields.word()?),
            attribute::LASTUSED => sa.last_used = Some(fields.long()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(sa)
}

/// Length of the ICV in an algorithm's message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HasIcv {
    Yes,
    No,
}

fn algorithm(value: &[u8], icv: HasIcv) -> Result<Algorithm, Refusal> {
    let mut fields = Fields(value);
    let name = text(&fields.bytes::<64>()?);
    if !name.is_ascii() || name.len() > 63 {
        return Err(invalid("the name of an algorithm is no text"));
    }
    let bits = fields.word()?;
    let icv_bits = if icv == HasIcv::Yes { Some(fields.word()?) } else { None };
    let length = usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX);
    let key = fields.0.get(..length).ok_or_else(|| invalid("the key is cut off"))?;
    Ok(Algorithm { name, key: Secret::new(key.into()), icv_bits })
}

fn replay(fields: &mut Fields<'_>) -> Result<Replay, Refusal> {
    Ok(Replay { sent: fields.word()?, received: fields.word()?, bitmap: fields.word()? })
}

fn replay_esn(fields: &mut Fields<'_>) -> Result<ReplayEsn, Refusal> {
    let words = fields.word()? as usize;
    if words > BITMAP {
        return Err(invalid("the window is of more than 65536 numbers"));
    }
    let [sent, received, sent_high, received_high, window] =
        [fields.word()?, fields.word()?, fields.word()?, fields.word()?, fields.word()?];
    // A message that only asks for a window may leave its bits out.
    let bitmap = if fields.0.is_empty() {
        vec![0; words]
    } else {
        (0..words).map(|_| fields.word()).collect::<Result<_, _>>()?
    };
    if window as usize > words * 32 {
        return Err(invalid("the window is larger than its bitmap"));
    }
    let long = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    Ok(ReplayEsn { sent: long(sent, sent_high), received: long(received, received_high), window, bitmap })
}

fn mark(fields: &mut Fields<'_>) -> Result<Mark, Refusal> {
    Ok(Mark { value: fields.word()?, mask: fields.word()? })
}

fn sa_id(fields: &mut Fields<'_>) -> Result<SaId, Refusal> {
    let destination = fields.address()?;
    let spi = fields.bytes().map(u32::from_be_bytes)?;
    let of = fields.half()?;
    let protocol = fields.byte()?;
    fields.skip::<1>()?;
    family(of)?;
    Ok(SaId { id: Id { destination, spi, protocol }, family: of })
}

fn ae(fields: &mut Fields<'_>) -> Result<Ae, Refusal> {
    let sa = sa_id(fields)?;
    let source = fields.address()?;
    let (flags, reqid) = (fields.word()?, fields.word()?);
    let mut ae = Ae { sa, source, flags, reqid, ..Ae::default() };
    each(fields.0, |kind, value| {
        let mut fields = Fields(value);
        match kind {
            attribute::REPLAY_VAL => ae.replay = Some(replay(&mut fields)?),
            attribute::REPLAY_ESN => ae.esn = Some(replay_esn(&mut fields)?),
            attribute::LTIME_VAL => ae.used = Some(used(&mut fields)?),
            attribute::MARK => ae.mark = Some(mark(&mut fields)?),
            attribute::SA_PCPU => ae.cpu = Some(fields.word()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(ae)
}

fn filter(rest: &[u8]) -> SaFilter {
    let mut filter = SaFilter::default();
    // A list takes what it understands, as its request may have a fixed part or none.
    let _ = each(rest, |kind, value| {
        let mut fields = Fields(value);
        match kind {
            attribute::PROTO => filter.protocol = fields.byte()?,
            attribute::ADDRESS_FILTER => {
                filter.ends = Some(EndFilter {
                    source: fields.address()?,
                    destination: fields.address()?,
                    family: fields.half()?,
                    source_len: fields.byte()?,
                    destination_len: fields.byte()?,
                });
            }
            _ => {}
        }
        Ok(())
    });
    filter
}

fn direction(byte: u8) -> Result<PolicyDirection, Refusal> {
    match byte {
        0 => Ok(PolicyDirection::In),
        1 => Ok(PolicyDirection::Out),
        2 => Ok(PolicyDirection::Forward),
        other => Err(invalid(&format!("no direction of a policy is {other}"))),
    }
}

fn policy(fields: &mut Fields<'_>) -> Result<Policy, Refusal> {
    let info = PolicyInfo {
        selector: selector(fields)?,
        lifetimes: lifetimes(fields)?,
        used: used(fields)?,
        priority: fields.word()?,
        index: fields.word()?,
        direction: direction(fields.byte()?)?,
        action: fields.byte()?,
        flags: fields.byte()?,
        share: fields.byte()?,
    };
    fields.skip::<4>()?;
    if info.action > 1 {
        return Err(invalid(&format!("no action of a policy is {}", info.action)));
    }
    family(info.selector.family)?;
    main_policies(fields.0)?;
    let mut policy = Policy { info, templates: Vec::new(), mark: None, if_id: None };
    each(fields.0, |kind, value| {
        let mut fields = Fields(value);
        match kind {
            attribute::TMPL => policy.templates = templates(value)?,
            attribute::MARK => policy.mark = Some(mark(&mut fields)?),
            attribute::IF_ID => policy.if_id = Some(fields.word()?),
            attribute::SEC_CTX => {
                return Err(Refusal::new(Errno::OPNOTSUPP, "security contexts are not supported"));
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(policy)
}

fn templates(value: &[u8]) -> Result<Vec<Template>, Refusal> {
    if value.len() / TEMPLATE > TEMPLATES {
        return Err(invalid("a policy has more than 6 templates"));
    }
    value.chunks_exact(TEMPLATE).map(|bytes| template(&mut Fields(bytes))).collect()
}

fn template(fields: &mut Fields<'_>) -> Result<Template, Refusal> {
    let id = id(fields)?;
    let of = fields.half()?;
    fields.skip::<2>()?;
    let (source, reqid) = (fields.address()?, fields.word()?);
    let (mode, share, optional) = (fields.byte()?, fields.byte()?, fields.byte()?);
    fields.skip::<1>()?;
    let algorithms = [fields.word()?, fields.word()?, fields.word()?];
    family(of)?;
    Ok(Template { id, family: of, source, reqid, mode, share, optional, algorithms })
}

fn policy_id(fields: &mut Fields<'_>) -> Result<PolicyId, Refusal> {
    let (selector, index) = (selector(fields)?, fields.word()?);
    let direction = direction(fields.byte()?)?;
    fields.skip::<3>()?;
    main_policies(fields.0)?;
    let mut read = PolicyId { selector, index, direction, mark: None, if_id: None };
    each(fields.0, |kind, value| {
        let mut fields = Fields(value);
        match kind {
            attribute::MARK => read.mark = Some(mark(&mut fields)?),
            attribute::IF_ID => read.if_id = Some(fields.word()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(read)
}

/// Refuses policies of type "sub", as a Linux that is built without them does.
fn main_policies(rest: &[u8]) -> Result<(), Refusal> {
    each(rest, |kind, value| match (kind, value.first()) {
        (attribute::POLICY_TYPE, Some(1)) => {
            Err(Refusal::new(Errno::OPNOTSUPP, "there are no policies of type sub"))
        }
        _ => Ok(()),
    })
}

fn thresholds(fields: &mut Fields<'_>) -> Result<Thresholds, Refusal> {
    fields.word()?;
    let mut read = Thresholds { v4: None, v6: None };
    each(fields.0, |kind, value| {
        let pair = |most: u8| {
            let [local, remote] = Fields(value).bytes()?;
            let fits = local <= most && remote <= most;
            if fits {
                Ok(Some([local, remote]))
            } else {
                Err(invalid("a threshold is longer than an address"))
            }
        };
        match kind {
            attribute::SPD_THRESHOLD_V4 => read.v4 = pair(32)?,
            attribute::SPD_THRESHOLD_V6 => read.v6 = pair(128)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(read)
}

fn expire(fields: &mut Fields<'_>) -> Result<Request, Refusal> {
    let info = sa_info(fields)?;
    let bound = if fields.byte()? == 0 { Bound::Soft } else { Bound::Hard };
    fields.skip::<7>()?;
    Ok(Request::Expire(Box::new(sa(info, fields.0)?), bound))
}

#[cfg(test)]
pub(crate) mod tests;
