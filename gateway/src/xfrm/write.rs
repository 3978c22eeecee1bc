//! Writer of XFRM messages: answers and events to bytes.
//!
//! Bytes are cleared when they are dropped, as some hold keys.

use netlink_packet_core::{
    NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_MULTIPART, NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN,
};
use zeroize::Zeroizing;

use super::message::{
    Address, Ae, Algorithm, Bound, Header, Id, Lifetimes, Mark, Policy, PolicyInfo, Replay, ReplayEsn, Sa,
    SaId, SaInfo, Selector, Template, Thresholds, Used, attribute, kind,
};
use super::parse::Refusal;
use crate::linux::message::HEADER;

/// Messages that travel together.
pub type Datagram = Zeroizing<Vec<u8>>;

/// Room for any message, but for the bitmaps of large windows: so that no copy with keys is left behind by growing.
const ROOM: usize = 4096;

/// Length of a datagram of a list, at which another one is begun. charon reads 4,096 bytes at most.
const FULL: usize = 2048;

/// Treatment of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// As they are: for the daemon, which gives an SA that moves to its new addresses with the keys that it asks for.
    Shown,
    /// Zeros of the same length: in lists and events, as under Linux's lockdown.
    Zeros,
}

/// Writer of the messages of one datagram.
pub struct Writer {
    bytes: Datagram,
    /// Place of the message that is written.
    start: usize,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer { bytes: Zeroizing::new(Vec::with_capacity(ROOM)), start: 0 }
    }
}

impl Writer {
    /// True if the datagram should be sent before more is added.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= FULL
    }

    /// The datagram.
    pub fn finish(self) -> Datagram {
        self.bytes
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > self.bytes.capacity() {
            // By hand, as growing would leave the old bytes in memory.
            let mut larger = Zeroizing::new(Vec::with_capacity((self.bytes.len() + bytes.len()) * 2));
            larger.extend_from_slice(&self.bytes);
            self.bytes = larger;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn zeros(&mut self, count: usize) {
        for _ in 0..count {
            self.put(&[0]);
        }
    }

    fn word(&mut self, word: u32) {
        self.put(&word.to_ne_bytes());
    }

    /// Writes a message whose body `write` adds.
    fn message(&mut self, header: &Header, write: impl FnOnce(&mut Writer)) {
        self.start = self.bytes.len();
        self.word(0);
        self.put(&header.kind.to_ne_bytes());
        self.put(&header.flags.to_ne_bytes());
        self.word(header.sequence);
        self.word(header.port);
        write(self);
        self.close(self.start, 4);
        self.pad();
    }

    /// Writes an attribute whose value `write` adds.
    fn attribute(&mut self, kind: u16, write: impl FnOnce(&mut Writer)) {
        self.pad();
        let start = self.bytes.len();
        self.put(&0_u16.to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        write(self);
        self.close(start, 2);
        self.pad();
    }

    /// Writes the length since `start` there, in `size` bytes.
    fn close(&mut self, start: usize, size: usize) {
        let length = (self.bytes.len() - start) as u32;
        let low = (length as u16).to_ne_bytes();
        let bytes = length.to_ne_bytes();
        if let Some(place) = self.bytes.get_mut(start..start + size) {
            place.copy_from_slice(if size == 4 { &bytes } else { &low });
        }
    }

    fn pad(&mut self) {
        self.zeros(self.bytes.len().next_multiple_of(4) - self.bytes.len());
    }

    fn selector(&mut self, selector: &Selector) {
        self.put(&selector.destination.0);
        self.put(&selector.source.0);
        for port in selector.destination_port.iter().chain(&selector.source_port) {
            self.put(&port.to_be_bytes());
        }
        self.put(&selector.family.to_ne_bytes());
        self.put(&[selector.destination_len, selector.source_len, selector.protocol, 0, 0, 0]);
        self.put(&selector.interface.to_ne_bytes());
        self.word(selector.user);
    }

    fn id(&mut self, id: &Id) {
        self.put(&id.destination.0);
        self.put(&id.spi.to_be_bytes());
        self.put(&[id.protocol, 0, 0, 0]);
    }

    fn sa_id(&mut self, sa: &SaId) {
        self.put(&sa.id.destination.0);
        self.put(&sa.id.spi.to_be_bytes());
        self.put(&sa.family.to_ne_bytes());
        self.put(&[sa.id.protocol, 0]);
    }

    fn lifetimes(&mut self, lifetimes: &Lifetimes) {
        let Lifetimes { bytes, packets, added, used } = lifetimes;
        for bound in [bytes, packets, added, used].into_iter().flatten() {
            self.put(&bound.to_ne_bytes());
        }
    }

    fn used(&mut self, used: &Used) {
        for number in [used.bytes, used.packets, used.added, used.first] {
            self.put(&number.to_ne_bytes());
        }
    }

    fn sa_info(&mut self, info: &SaInfo) {
        self.selector(&info.selector);
        self.id(&info.id);
        self.put(&info.source.0);
        self.lifetimes(&info.lifetimes);
        self.used(&info.used);
        for number in info.failures.into_iter().chain([info.sequence, info.reqid]) {
            self.word(number);
        }
        self.put(&info.family.to_ne_bytes());
        self.put(&[info.mode, info.window, info.flags, 0, 0, 0, 0, 0, 0, 0]);
    }

    fn algorithm(&mut self, kind: u16, algorithm: &Algorithm, keys: KeyUse) {
        self.attribute(kind, |writer| {
            let name = algorithm.name.as_bytes();
            let name = name.get(..name.len().min(63)).unwrap_or(name);
            writer.put(name);
            writer.zeros(64 - name.len());
            writer.word(algorithm.key.len() as u32 * 8);
            if let Some(bits) = algorithm.icv_bits {
                writer.word(bits);
            }
            match keys {
                KeyUse::Shown => writer.put(algorithm.key.expose()),
                KeyUse::Zeros => writer.zeros(algorithm.key.len()),
            }
        });
    }

    fn replay(&mut self, replay: &Replay) {
        self.attribute(attribute::REPLAY_VAL, |writer| {
            [replay.sent, replay.received, replay.bitmap].into_iter().for_each(|word| writer.word(word));
        });
    }

    fn replay_esn(&mut self, esn: &ReplayEsn) {
        self.attribute(attribute::REPLAY_ESN, |writer| {
            writer.word(esn.bitmap.len() as u32);
            let numbers = [esn.sent, esn.received];
            numbers.into_iter().for_each(|number| writer.word(number as u32));
            numbers.into_iter().for_each(|number| writer.word((number >> 32) as u32));
            writer.word(esn.window);
            esn.bitmap.iter().for_each(|word| writer.word(*word));
        });
    }

    fn words<const N: usize>(&mut self, kind: u16, words: Option<[u32; N]>) {
        if let Some(words) = words {
            self.attribute(kind, |writer| words.into_iter().for_each(|word| writer.word(word)));
        }
    }

    fn mark(&mut self, mark: Option<Mark>) {
        self.words(attribute::MARK, mark.map(|mark| [mark.value, mark.mask]));
    }

    fn sa_attributes(&mut self, sa: &Sa, keys: KeyUse) {
        let algorithms = [
            (attribute::AEAD, &sa.aead),
            (attribute::CRYPT, &sa.cipher),
            (if has_icv(sa.auth.as_ref()) { attribute::AUTH_TRUNC } else { attribute::AUTH }, &sa.auth),
        ];
        for (kind, algorithm) in algorithms {
            if let Some(algorithm) = algorithm {
                self.algorithm(kind, algorithm, keys);
            }
        }
        if let Some(encap) = &sa.encap {
            self.attribute(attribute::ENCAP, |writer| {
                writer.put(&encap.kind.to_ne_bytes());
                writer.put(&encap.source_port.to_be_bytes());
                writer.put(&encap.destination_port.to_be_bytes());
                writer.zeros(2);
                writer.put(&encap.original.0);
            });
        }
        sa.replay.iter().for_each(|replay| self.replay(replay));
        sa.esn.iter().for_each(|esn| self.replay_esn(esn));
        self.mark(sa.mark);
        for (kind, word) in [
            (attribute::SET_MARK, sa.set_mark),
            (attribute::SET_MARK_MASK, sa.set_mark_mask),
            (attribute::TFCPAD, sa.tfc),
            (attribute::EXTRA_FLAGS, sa.extra_flags),
            (attribute::IF_ID, sa.if_id),
            (attribute::NAT_KEEPALIVE, sa.keepalive),
            (attribute::SA_PCPU, sa.cpu),
        ] {
            self.words(kind, word.map(|word| [word]));
        }
        if let Some(direction) = sa.direction {
            self.attribute(attribute::SA_DIR, |writer| writer.put(&[direction]));
        }
        if let Some(at) = sa.last_used {
            self.attribute(attribute::LASTUSED, |writer| writer.put(&at.to_ne_bytes()));
        }
    }

    fn policy_info(&mut self, info: &PolicyInfo) {
        self.selector(&info.selector);
        self.lifetimes(&info.lifetimes);
        self.used(&info.used);
        self.word(info.priority);
        self.word(info.index);
        self.put(&[info.direction as u8, info.action, info.flags, info.share, 0, 0, 0, 0]);
    }

    fn policy_attributes(&mut self, policy: &Policy) {
        if !policy.templates.is_empty() {
            self.attribute(attribute::TMPL, |writer| {
                policy.templates.iter().for_each(|template| writer.template(template));
            });
        }
        self.mark(policy.mark);
        self.words(attribute::IF_ID, policy.if_id.map(|id| [id]));
    }

    fn template(&mut self, template: &Template) {
        self.id(&template.id);
        self.put(&template.family.to_ne_bytes());
        self.zeros(2);
        self.put(&template.source.0);
        self.word(template.reqid);
        self.put(&[template.mode, template.share, template.optional, 0]);
        template.algorithms.into_iter().for_each(|word| self.word(word));
    }

    /// Adds an SA: the answer to a request for it, or news of it.
    pub fn sa(&mut self, header: &Header, sa: &Sa, keys: KeyUse) {
        self.message(header, |writer| {
            writer.sa_info(&sa.info);
            writer.sa_attributes(sa, keys);
        });
    }

    /// Adds a policy: the answer to a request for it, or news of it.
    pub fn policy(&mut self, header: &Header, policy: &Policy) {
        self.message(header, |writer| {
            writer.policy_info(&policy.info);
            writer.policy_attributes(policy);
        });
    }
}

fn has_icv(algorithm: Option<&Algorithm>) -> bool {
    algorithm.is_some_and(|algorithm| algorithm.icv_bits.is_some())
}

fn alone(header: &Header, write: impl FnOnce(&mut Writer)) -> Datagram {
    let mut writer = Writer::default();
    writer.message(header, write);
    writer.finish()
}

/// Header of the answer to a request.
pub fn answer_to(request: &Header, kind: u16) -> Header {
    Header { kind, flags: 0, ..*request }
}

/// Header of one of several answers to a request.
pub fn part_of_answer_to(request: &Header, kind: u16) -> Header {
    Header { kind, flags: NLM_F_MULTIPART, ..*request }
}

/// Header of an event.
pub fn event(kind: u16) -> Header {
    Header { kind, ..Header::default() }
}

/// Acknowledgement of a request, or its refusal with the reason.
pub fn acknowledgement(request: &Header, refusal: Option<&Refusal>) -> Datagram {
    const MESSAGE: u16 = 1;
    let flags = match refusal {
        Some(_) => NLM_F_CAPPED | NLM_F_ACK_TLVS,
        None => NLM_F_CAPPED,
    };
    alone(&Header { flags, ..answer_to(request, NLMSG_ERROR) }, |writer| {
        let errno = refusal.map_or(0, |refusal| -refusal.errno.raw_os_error());
        writer.put(&errno.to_ne_bytes());
        // The header of the request alone, which says that it is so by "capped".
        writer.word(HEADER as u32);
        writer.put(&request.kind.to_ne_bytes());
        writer.put(&request.flags.to_ne_bytes());
        writer.word(request.sequence);
        writer.word(request.port);
        if let Some(refusal) = refusal {
            writer.attribute(MESSAGE, |writer| {
                writer.put(refusal.words.as_bytes());
                writer.zeros(1);
            });
        }
    })
}

/// End of a list.
pub fn done(request: &Header) -> Datagram {
    alone(&part_of_answer_to(request, NLMSG_DONE), |writer| writer.word(0))
}

/// News that events have been lost.
pub fn overrun() -> Datagram {
    alone(&event(NLMSG_OVERRUN), |_| {})
}

/// SA, by itself.
pub fn sa(header: &Header, sa: &Sa, keys: KeyUse) -> Datagram {
    let mut writer = Writer::default();
    writer.sa(header, sa, keys);
    writer.finish()
}

/// Policy, by itself.
pub fn policy(header: &Header, policy: &Policy) -> Datagram {
    let mut writer = Writer::default();
    writer.policy(header, policy);
    writer.finish()
}

/// News that an SA was removed.
pub fn removed_sa(sa: &Sa) -> Datagram {
    alone(&event(kind::DELSA), |writer| {
        writer.sa_id(&sa.info.name());
        writer.attribute(attribute::SA, |writer| writer.sa_info(&sa.info));
        writer.sa_attributes(sa, KeyUse::Zeros);
    })
}

/// News that all SAs of a protocol were removed.
pub fn flushed_sas(protocol: u8) -> Datagram {
    alone(&event(kind::FLUSHSA), |writer| writer.put(&[protocol]))
}

/// News that a policy was removed.
pub fn removed_policy(policy: &Policy) -> Datagram {
    alone(&event(kind::DELPOLICY), |writer| {
        let PolicyInfo { selector, index, direction, .. } = policy.info;
        writer.selector(&selector);
        writer.word(index);
        writer.put(&[direction as u8, 0, 0, 0]);
        writer.attribute(attribute::POLICY, |writer| writer.policy_info(&policy.info));
        writer.policy_attributes(policy);
    })
}

/// Request for one SA.
pub fn sa_request(header: &Header, sa: &SaId, mark: Option<Mark>) -> Datagram {
    alone(header, |writer| {
        writer.sa_id(sa);
        writer.mark(mark);
    })
}

/// News that all policies were removed.
pub fn flushed_policies() -> Datagram {
    alone(&event(kind::FLUSHPOLICY), |_| {})
}

/// News that a lifetime of an SA has ended.
pub fn expire(header: &Header, sa: &Sa, bound: Bound) -> Datagram {
    alone(header, |writer| {
        writer.sa_info(&sa.info);
        writer.put(&[u8::from(bound == Bound::Hard), 0, 0, 0, 0, 0, 0, 0]);
        writer.mark(sa.mark);
        writer.words(attribute::IF_ID, sa.if_id.map(|id| [id]));
        writer.words(attribute::SA_PCPU, sa.cpu.map(|cpu| [cpu]));
    })
}

/// News that a packet needs the SA of a policy's template, or one for this processor.
pub fn acquire(
    sequence: u32,
    template: &Template,
    packet: &Selector,
    policy: &Policy,
    cpu: Option<u16>,
) -> Datagram {
    alone(&event(kind::ACQUIRE), |writer| {
        writer.id(&template.id);
        writer.put(&template.source.0);
        writer.selector(packet);
        writer.policy_info(&policy.info);
        template.algorithms.into_iter().for_each(|word| writer.word(word));
        writer.word(sequence);
        writer.policy_attributes(policy);
        writer.words(attribute::SA_PCPU, cpu.map(|cpu| [cpu.into()]));
    })
}

/// News that the peer of an SA sends from another address or port.
pub fn mapping(sa: &Sa, source: Address, port: u16) -> Datagram {
    alone(&event(kind::MAPPING), |writer| {
        writer.sa_id(&sa.info.name());
        writer.word(sa.info.reqid);
        writer.put(&sa.info.source.0);
        writer.put(&source.0);
        writer.put(&sa.encap.map_or(0, |encap| encap.source_port).to_be_bytes());
        writer.put(&port.to_be_bytes());
    })
}

/// Numbers and use of an SA.
pub fn ae(header: &Header, ae: &Ae) -> Datagram {
    alone(header, |writer| {
        writer.sa_id(&ae.sa);
        writer.put(&ae.source.0);
        writer.word(ae.flags);
        writer.word(ae.reqid);
        ae.replay.iter().for_each(|replay| writer.replay(replay));
        ae.esn.iter().for_each(|esn| writer.replay_esn(esn));
        if let Some(used) = &ae.used {
            writer.attribute(attribute::LTIME_VAL, |writer| writer.used(used));
        }
        writer.mark(ae.mark);
        writer.words(attribute::SA_PCPU, ae.cpu.map(|cpu| [cpu]));
    })
}

/// Counts of SAs.
pub fn sad_info(header: &Header, count: u32, most: u32) -> Datagram {
    alone(header, |writer| {
        writer.word(u32::MAX);
        writer.words(attribute::SAD_COUNT, Some([count]));
        writer.words(attribute::SAD_HASH, Some([most, most]));
    })
}

/// Counts of policies by direction: in, out, forward.
pub fn spd_info(header: &Header, counts: [u32; 3], most: u32, thresholds: &Thresholds) -> Datagram {
    alone(header, |writer| {
        writer.word(u32::MAX);
        let [inward, out, forward] = counts;
        writer.words(attribute::SPD_COUNT, Some([inward, out, forward, 0, 0, 0]));
        writer.words(attribute::SPD_HASH, Some([most, most]));
        let given = [
            (attribute::SPD_THRESHOLD_V4, thresholds.v4.unwrap_or([32, 32])),
            (attribute::SPD_THRESHOLD_V6, thresholds.v6.unwrap_or([128, 128])),
        ];
        for (kind, bits) in given {
            writer.attribute(kind, |writer| writer.put(&bits));
        }
    })
}
