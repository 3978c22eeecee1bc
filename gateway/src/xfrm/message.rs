//! Messages of XFRM (`linux/xfrm.h`) as values, in the order of their fields.
//!
//! Addresses and families stay as they come, so that what is read is written again to the byte.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::esp::Secret;

pub use rustix::io::Errno;

pub mod attribute;
pub mod kind;

/// Protocol number of ESP.
pub const ESP: u8 = 50;

/// Family of IPv4 in messages.
pub const AF_INET: u16 = 2;

/// Family of IPv6 in messages.
pub const AF_INET6: u16 = 10;

/// Flag of an SA: numbers of 64 bits.
pub const ESN: u8 = 128;

/// Flag of a policy: processors that have only an SA of all ask for one of their own (`XFRM_POLICY_CPU_ACQUIRE`).
pub const CPU_ACQUIRE: u8 = 4;

/// Group of connections that are told of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Packets that need an SA.
    Acquire = 1,
    /// Lifetimes that ended.
    Expire = 2,
    /// SAs that come and go.
    Sa = 3,
    /// Policies that come and go.
    Policy = 4,
    /// Numbers of SAs that were set.
    Ae = 5,
    /// Peers that send from another address or port.
    Mapping = 8,
}

impl Group {
    /// The group's bit in what a connection asks for.
    pub fn bit(self) -> u32 {
        1 << (self as u32 - 1)
    }
}

/// Header of a message, without its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Type.
    pub kind: u16,
    /// Flags.
    pub flags: u16,
    /// Number that the answer repeats.
    pub sequence: u32,
    /// Number of the sender's socket, which the answer repeats.
    pub port: u32,
}

/// Address of either version; IPv4 is in the first four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 16]);

impl Address {
    /// The address by its family; `None` for one that is neither IPv4 nor IPv6.
    pub fn ip(self, family: u16) -> Option<IpAddr> {
        let Address([a, b, c, d, ..]) = self;
        match family {
            AF_INET => Some(Ipv4Addr::new(a, b, c, d).into()),
            AF_INET6 => Some(Ipv6Addr::from(self.0).into()),
            _ => None,
        }
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Address {
        match address {
            IpAddr::V4(address) => {
                let [a, b, c, d] = address.octets();
                Address([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            }
            IpAddr::V6(address) => Address(address.octets()),
        }
    }
}

/// Packets of an SA or policy (`xfrm_selector`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    /// Destination.
    pub destination: Address,
    /// Source.
    pub source: Address,
    /// Destination port, and the bits of it that matter.
    pub destination_port: [u16; 2],
    /// Source port, and the bits of it that matter.
    pub source_port: [u16; 2],
    /// Family of the addresses; 0 for any packet.
    pub family: u16,
    /// Bits of the destination that matter.
    pub destination_len: u8,
    /// Bits of the source that matter.
    pub source_len: u8,
    /// Protocol; 0 for any.
    pub protocol: u8,
    /// Index of an interface of Linux; 0 for any.
    pub interface: i32,
    /// User.
    pub user: u32,
}

impl Selector {
    /// True if all packets of the other one are this one's, too.
    pub fn has(&self, other: &Selector) -> bool {
        let ports =
            |own: [u16; 2], other: [u16; 2]| own[1] & !other[1] == 0 && (own[0] ^ other[0]) & own[1] == 0;
        (self.family == 0 || self.family == other.family)
            && self.destination_len <= other.destination_len
            && self.source_len <= other.source_len
            && same_prefix(self.destination, other.destination, self.destination_len)
            && same_prefix(self.source, other.source, self.source_len)
            && (self.protocol == 0 || self.protocol == other.protocol)
            && ports(self.destination_port, other.destination_port)
            && ports(self.source_port, other.source_port)
    }
}

/// True if the first `len` bits of both addresses are the same.
pub fn same_prefix(one: Address, other: Address, len: u8) -> bool {
    let shift = 128_u32.saturating_sub(u32::from(len));
    let differs = u128::from_be_bytes(one.0) ^ u128::from_be_bytes(other.0);
    differs.checked_shr(shift).unwrap_or(0) == 0
}

/// Name of an SA (`xfrm_id`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Destination of outer packets.
    pub destination: Address,
    /// Security parameters index.
    pub spi: u32,
    /// Protocol.
    pub protocol: u8,
}

/// Bounds of an SA or policy (`xfrm_lifetime_cfg`); all ones is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Bytes, soft and hard.
    pub bytes: [u64; 2],
    /// Packets, soft and hard.
    pub packets: [u64; 2],
    /// Seconds since it was added, soft and hard; 0 is none too.
    pub added: [u64; 2],
    /// Seconds since first use, soft and hard; 0 is none too.
    pub used: [u64; 2],
}

impl SaInfo {
    /// Name of the SA.
    pub fn name(&self) -> SaId {
        SaId { id: self.id, family: self.family }
    }
}

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        Lifetimes { bytes: [u64::MAX; 2], packets: [u64::MAX; 2], added: [0; 2], used: [0; 2] }
    }
}

/// Use of an SA or policy so far (`xfrm_lifetime_cur`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Time of addition, in seconds since 1970.
    pub added: u64,
    /// Time of first use, in seconds since 1970; 0 if none.
    pub first: u64,
}

/// Fixed part of a message on an SA (`xfrm_usersa_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaInfo {
    /// Packets that may be in it.
    pub selector: Selector,
    /// Name.
    pub id: Id,
    /// Source of outer packets.
    pub source: Address,
    /// Bounds.
    pub lifetimes: Lifetimes,
    /// Use so far.
    pub used: Used,
    /// Packets outside the window, repeated, and forged.
    pub failures: [u32; 3],
    /// Number of the ACQUIRE that it answers.
    pub sequence: u32,
    /// Number that binds it to policies.
    pub reqid: u32,
    /// Family of outer addresses.
    pub family: u16,
    /// Mode: 0 transport, 1 tunnel.
    pub mode: u8,
    /// Window, where it is at most 32 numbers.
    pub window: u8,
    /// Flags.
    pub flags: u8,
}

/// Algorithm of an SA with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// Linux's name: `rfc4106(gcm(aes))`.
    pub name: String,
    /// Key, followed by the salt.
    pub key: Secret,
    /// Bits of the ICV; `None` where the message leaves them to the algorithm, or it has none.
    pub icv_bits: Option<u32>,
}

/// UDP encapsulation (`xfrm_encap_tmpl`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encap {
    /// Kind: 2 for RFC 3948.
    pub kind: u16,
    /// Source port of outer packets.
    pub source_port: u16,
    /// Destination port of outer packets.
    pub destination_port: u16,
    /// Original address.
    pub original: Address,
}

/// Numbers of 32 bits (`xfrm_replay_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Last number sent.
    pub sent: u32,
    /// Highest number received.
    pub received: u32,
    /// Numbers received of those before it.
    pub bitmap: u32,
}

/// Numbers of 64 bits with a window of any size (`xfrm_replay_state_esn`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayEsn {
    /// Last number sent.
    pub sent: u64,
    /// Highest number received.
    pub received: u64,
    /// Numbers in the window.
    pub window: u32,
    /// Numbers received, in words of 32.
    pub bitmap: Vec<u32>,
}

/// Mark with the bits of it that matter (`xfrm_mark`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Value.
    pub value: u32,
    /// Mask.
    pub mask: u32,
}

/// SA with its attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sa {
    /// Fixed part.
    pub info: SaInfo,
    /// Cipher that authenticates.
    pub aead: Option<Algorithm>,
    /// Cipher that does not.
    pub cipher: Option<Algorithm>,
    /// Integrity algorithm.
    pub auth: Option<Algorithm>,
    /// UDP encapsulation.
    pub encap: Option<Encap>,
    /// Numbers.
    pub replay: Option<Replay>,
    /// Numbers of 64 bits.
    pub esn: Option<ReplayEsn>,
    /// Mark of packets for it.
    pub mark: Option<Mark>,
    /// Mark put on packets.
    pub set_mark: Option<u32>,
    /// Mask of the mark put on packets.
    pub set_mark_mask: Option<u32>,
    /// Length to pad to, for the confidentiality of traffic flow.
    pub tfc: Option<u32>,
    /// More flags.
    pub extra_flags: Option<u32>,
    /// Number of its interface.
    pub if_id: Option<u32>,
    /// Direction: 1 in, 2 out.
    pub direction: Option<u8>,
    /// Seconds between keepalives.
    pub keepalive: Option<u32>,
    /// Processor whose packets alone leave by it; all where there is none (RFC 9611).
    pub cpu: Option<u32>,
    /// Time of last use, in seconds since 1970.
    pub last_used: Option<u64>,
}

/// Reference to an SA (`xfrm_usersa_id`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SaId {
    /// Name.
    pub id: Id,
    /// Family of the destination.
    pub family: u16,
}

/// Request for an SPI (`xfrm_userspi_info`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocSpi {
    /// SA that is to come.
    pub sa: Sa,
    /// Smallest SPI.
    pub min: u32,
    /// Largest SPI.
    pub max: u32,
}

/// Numbers and use of an SA (`xfrm_aevent_id` and attributes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ae {
    /// SA.
    pub sa: SaId,
    /// Source of its outer packets.
    pub source: Address,
    /// Reason of an event, and wishes of a request.
    pub flags: u32,
    /// Number that binds it to policies.
    pub reqid: u32,
    /// Numbers.
    pub replay: Option<Replay>,
    /// Numbers of 64 bits.
    pub esn: Option<ReplayEsn>,
    /// Use so far.
    pub used: Option<Used>,
    /// Mark of packets for it.
    pub mark: Option<Mark>,
    /// Processor, of events and answers.
    pub cpu: Option<u32>,
}

/// SA that a policy asks for (`xfrm_user_tmpl`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// Name; SPI 0 for any.
    pub id: Id,
    /// Family of outer addresses.
    pub family: u16,
    /// Source of outer packets.
    pub source: Address,
    /// Number that binds it to SAs; 0 for any.
    pub reqid: u32,
    /// Mode.
    pub mode: u8,
    /// Sharing.
    pub share: u8,
    /// 1 if packets may do without.
    pub optional: u8,
    /// Permitted integrity algorithms, ciphers and compressions, as bits.
    pub algorithms: [u32; 3],
}

/// Direction of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyDirection {
    /// Packets for the machine itself.
    In = 0,
    /// Packets that leave.
    Out = 1,
    /// Packets that are forwarded, after they came in.
    Forward = 2,
}

/// Fixed part of a message on a policy (`xfrm_userpolicy_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Packets.
    pub selector: Selector,
    /// Bounds.
    pub lifetimes: Lifetimes,
    /// Use so far.
    pub used: Used,
    /// Priority: the smallest first.
    pub priority: u32,
    /// Number; 0 in requests for a new one.
    pub index: u32,
    /// Direction.
    pub direction: PolicyDirection,
    /// 0 to allow, 1 to block.
    pub action: u8,
    /// Flags.
    pub flags: u8,
    /// Sharing.
    pub share: u8,
}

/// Policy with its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Fixed part.
    pub info: PolicyInfo,
    /// SAs asked for, innermost first; none for packets in clear.
    pub templates: Vec<Template>,
    /// Mark of packets.
    pub mark: Option<Mark>,
    /// Number of the interface.
    pub if_id: Option<u32>,
}

/// Reference to a policy (`xfrm_userpolicy_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyId {
    /// Packets, where there is no index.
    pub selector: Selector,
    /// Number; 0 for none.
    pub index: u32,
    /// Direction.
    pub direction: PolicyDirection,
    /// Mark of packets.
    pub mark: Option<Mark>,
    /// Number of the interface.
    pub if_id: Option<u32>,
}

/// Reach of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The daemon is to make a new SA.
    Soft,
    /// The SA is gone.
    Hard,
}

/// SAs to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaFilter {
    /// Protocol; 0 for any.
    pub protocol: u8,
    /// Source and destination with the bits of each that matter.
    pub ends: Option<EndFilter>,
}

/// Ends of SAs to list (`xfrm_address_filter`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndFilter {
    /// Source.
    pub source: Address,
    /// Destination.
    pub destination: Address,
    /// Family.
    pub family: u16,
    /// Bits of the source that matter.
    pub source_len: u8,
    /// Bits of the destination that matter.
    pub destination_len: u8,
}

/// Thresholds of the hash table of policies: bits of the local and remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// IPv4.
    pub v4: Option<[u8; 2]>,
    /// IPv6.
    pub v6: Option<[u8; 2]>,
}

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Events of these groups, as bits.
    Subscribe(u32),
    /// An SPI that is not in use.
    AllocSpi(Box<AllocSpi>),
    /// A new SA.
    NewSa(Box<Sa>),
    /// Another SA in the place of one, or of an allocated SPI.
    UpdateSa(Box<Sa>),
    /// Removal of an SA.
    DeleteSa(SaId),
    /// One SA.
    GetSa(SaId),
    /// All SAs of a kind.
    ListSas(SaFilter),
    /// Removal of all SAs of a protocol; 0 and 255 for any.
    FlushSas(u8),
    /// New numbers of an SA.
    NewAe(Box<Ae>),
    /// Numbers of an SA.
    GetAe(Box<Ae>),
    /// A new policy.
    NewPolicy(Box<Policy>),
    /// A policy, new or in the place of one.
    UpdatePolicy(Box<Policy>),
    /// Removal of a policy.
    DeletePolicy(Box<PolicyId>),
    /// One policy.
    GetPolicy(Box<PolicyId>),
    /// All policies.
    ListPolicies,
    /// Removal of all policies.
    FlushPolicies,
    /// Thresholds to keep.
    SetThresholds(Thresholds),
    /// Counts of policies.
    GetSpdInfo,
    /// Counts of SAs.
    GetSadInfo,
    /// News for the other clients that the lifetime of an SA has ended.
    Expire(Box<Sa>, Bound),
}
