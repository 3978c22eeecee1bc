//! Types of attributes.

/// Integrity algorithm, with its usual ICV.
pub const AUTH: u16 = 1;
/// Cipher.
pub const CRYPT: u16 = 2;
/// Compression.
pub const COMP: u16 = 3;
/// UDP encapsulation.
pub const ENCAP: u16 = 4;
/// Templates of a policy.
pub const TMPL: u16 = 5;
/// SA, of which another message tells.
pub const SA: u16 = 6;
/// Policy, of which another message tells.
pub const POLICY: u16 = 7;
/// Security context.
pub const SEC_CTX: u16 = 8;
/// Lifetime used.
pub const LTIME_VAL: u16 = 9;
/// Numbers of 32 bits.
pub const REPLAY_VAL: u16 = 10;
/// Source address, where the message has only the destination.
pub const SRCADDR: u16 = 13;
/// Time of last use.
pub const LASTUSED: u16 = 15;
/// Type of a policy: main or sub.
pub const POLICY_TYPE: u16 = 16;
/// Cipher that authenticates.
pub const AEAD: u16 = 18;
/// Integrity algorithm with the length of its ICV.
pub const AUTH_TRUNC: u16 = 20;
/// Mark and mask.
pub const MARK: u16 = 21;
/// Padding for the confidentiality of traffic flow.
pub const TFCPAD: u16 = 22;
/// Numbers of 64 bits and a window.
pub const REPLAY_ESN: u16 = 23;
/// More flags of an SA.
pub const EXTRA_FLAGS: u16 = 24;
/// Protocol, as a filter of lists.
pub const PROTO: u16 = 25;
/// Addresses, as a filter of lists.
pub const ADDRESS_FILTER: u16 = 26;
/// Mark put on packets.
pub const SET_MARK: u16 = 29;
/// Mask of the mark put on packets.
pub const SET_MARK_MASK: u16 = 30;
/// Number of an interface of SAs.
pub const IF_ID: u16 = 31;
/// Direction of an SA.
pub const SA_DIR: u16 = 33;
/// Seconds between keepalives through a NAT.
pub const NAT_KEEPALIVE: u16 = 34;
/// Processor whose packets alone leave by an SA, or that needs one.
pub const SA_PCPU: u16 = 35;
/// Count of SAs, in the answer on them.
pub const SAD_COUNT: u16 = 1;
/// Sizes of the hash table of SAs.
pub const SAD_HASH: u16 = 2;
/// Counts of policies, in the answer on them.
pub const SPD_COUNT: u16 = 1;
/// Sizes of the hash table of policies.
pub const SPD_HASH: u16 = 2;
/// Thresholds of IPv4 for the hash table of policies.
pub const SPD_THRESHOLD_V4: u16 = 3;
/// Thresholds of IPv6 for the hash table of policies.
pub const SPD_THRESHOLD_V6: u16 = 4;
