//! Reasons for dropping, holding or answering a frame: the operator's manual.

use std::fmt;

/// Reason for dropping, holding or answering a frame. The closed list; [`Reason::ALL`] has cause and remedy of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The frame is shorter than its link-layer header.
    LinkTruncated,
    /// The frame carries neither IPv4 nor IPv6 nor ARP.
    EthertypeUnsupported,
    /// The frame is in a VLAN that no interface of the policy has.
    VlanUnknown,
    /// The frame's link-layer destination is another machine.
    OtherHost,
    /// Linux forwards the packet from an interface that the policy does not name.
    OtherDrop,
    /// A packet for one host came in a link-layer broadcast or multicast.
    LinkBroadcast,
    /// The frame ends within the IPv4 header.
    Ipv4Truncated,
    /// The Ethernet type says IPv4, the version field does not.
    Ipv4Version,
    /// The IPv4 header length is below 20 bytes or past the end of the packet.
    Ipv4HeaderLength,
    /// The IPv4 total length is smaller than the header or larger than the frame.
    Ipv4TotalLength,
    /// The IPv4 header checksum is wrong.
    Ipv4Checksum,
    /// The packet carries a source-route option.
    Ipv4SourceRoute,
    /// The frame ends within the IPv6 header or one of its extension headers.
    Ipv6Truncated,
    /// The Ethernet type says IPv6, the version field does not.
    Ipv6Version,
    /// The IPv6 payload length is larger than the frame.
    Ipv6PayloadLength,
    /// The packet has more extension headers, or longer ones, than are looked through.
    Ipv6HeaderChain,
    /// The packet carries a type 0 routing header.
    Ipv6SourceRoute,
    /// The packet ends within its TCP, UDP or ICMP header.
    TransportTruncated,
    /// The TCP data offset or the UDP length does not fit the packet.
    TransportLength,
    /// The TCP, UDP or ICMP checksum of a packet that would open or close a connection is wrong.
    TransportChecksum,
    /// The source is an address that no host can have: unspecified, loopback, multicast, broadcast, reserved, mapped, or
    /// the gateway's own.
    SourceMartian,
    /// The destination is an address that is never routed: unspecified, loopback, reserved or mapped.
    DestinationMartian,
    /// The source address is not at home behind the interface that the packet came in by.
    SourceSpoofed,
    /// Source and destination, address and port, are the same.
    Land,
    /// The destination is a multicast group that no route has, or whose route leads to no interface.
    MulticastUnrouted,
    /// A packet to a multicast group came in by another interface than its route says.
    MulticastInterface,
    /// The time to live of a packet to a multicast group is not above the threshold of any interface that its route leads to.
    MulticastTtl,
    /// A copy of a packet to a multicast group, for which there was no slot.
    MulticastCopy,
    /// The destination is the broadcast address of a network behind the gateway.
    BroadcastDirected,
    /// A fragment came before the first of its datagram, which has the ports; it waits.
    FragmentWaits,
    /// A first fragment too small to hold the transport header, or one that would overwrite it.
    FragmentTiny,
    /// A fragment overlaps another one of its datagram.
    FragmentOverlap,
    /// The fragments make up more than a datagram may hold.
    FragmentOversize,
    /// More datagrams are in fragments, or more fragments wait, than memory was set aside for.
    FragmentTableFull,
    /// The first fragment of the datagram did not come in time.
    FragmentTimeout,
    /// A TCP segment that opens nothing belongs to no connection.
    FlowNotOpen,
    /// As many flows exist as memory was set aside for.
    FlowTableFull,
    /// The source has as many flows open as it may.
    FlowLimit,
    /// The TCP flags are a combination that no TCP sends.
    TcpFlags,
    /// The segment lies outside the window of its connection.
    TcpWindow,
    /// The segment does not fit the state of its connection, which was reset or closed.
    TcpState,
    /// An ICMP error quotes a packet of no connection, or an ICMP reply answers nothing.
    IcmpUnrelated,
    /// An ICMP error quotes a segment that its TCP connection has not under way.
    IcmpWindow,
    /// The translation has no free port left, or no free block of ports.
    NatPorts,
    /// The inside address holds as many ports of the translation as it may, or all of as many blocks.
    NatQuota,
    /// As many translations exist as memory was set aside for.
    NatTableFull,
    /// The translated packet could not be told from another connection's.
    NatClash,
    /// The interface that the packet would leave by has no address to masquerade it with, or that which it came in by none to redirect it to.
    NatNoAddress,
    /// NAT64 or a CLAT does not lead to the IPv4 destination: it is no address of another host, or is not public.
    Nat64Address,
    /// NAT64 or a CLAT has no counterpart for the packet in the other IP version.
    Nat64Packet,
    /// The policy that now holds, or a dynamic set as it is now, does not let in the flow that an earlier one did, and has ended it.
    FlowRevoked,
    /// The translation of the flow, or the address that it gave, is gone from the policy, which has ended the flow.
    FlowTranslation,
    /// The WAN of the flow, or that of its policy route, is down.
    WanDown,
    /// On a connection with a helper, a segment before this one is missing, or an announcement is not whole in it.
    HelperIncomplete,
    /// An announcement on a connection with a helper cannot be carried out.
    HelperRefused,
    /// No server of the translation is up.
    NoServer,
    /// The server of the flow is down, which has ended the flow.
    ServerDown,
    /// The interface that the flow or the frame came in by, or waits to leave by, is gone from the policy.
    InterfaceGone,
    /// No route leads to the destination.
    RouteMissing,
    /// The route to the destination is a blackhole.
    RouteBlackhole,
    /// The route to the destination says unreachable.
    RouteUnreachable,
    /// The link-layer address of the next hop is not known.
    NeighbourUnknown,
    /// The link-layer address of the next hop is being asked for; the packet waits.
    NeighbourWaits,
    /// More packets wait for link-layer addresses of next hops, or of this one, than may.
    NeighbourQueueFull,
    /// A host on the link asks for an outside address of a translation, for which the gateway answers.
    NeighbourProxied,
    /// The packet belongs to a flow of another worker, and is on its way there.
    HandedOff,
    /// The packet belongs to a flow of another worker, which is behind with what is handed off to it.
    HandoffFull,
    /// The second gateway may have the packet's flow, or opens it: the packet is handed over.
    PeerOwns,
    /// The packet is for the second gateway, whose link does not take it.
    PeerLinkFull,
    /// The time to live, or hop limit, has run out.
    TtlExpired,
    /// The packet is larger than the outgoing interface carries and must not be fragmented.
    PacketTooBig,
    /// A packet from or to a link-local address would leave its link, or neighbour discovery has already crossed a
    /// router (its hop limit is not 255).
    LinkLocal,
    /// A rule says drop.
    RuleDrop,
    /// A rule says reject.
    RuleReject,
    /// A rule says that the gateway answers SYNs, and opens connections to servers itself.
    SynProxied,
    /// No rule decided, and the default of the zone pair is drop.
    DefaultDrop,
    /// No rule decided, and the default of the zone pair is reject.
    DefaultReject,
    /// More came than the `rate` of the rule that accepts lets through.
    RateLimit,
    /// As many connections exist as the `connections` of the rule that accepts allows.
    ConnectionLimit,
    /// The packet came faster than the meter of its traffic class allows.
    Policed,
    /// More frames wait for the interface than its queue holds.
    QueueFull,
    /// Active queue management dropped the packet from its queue.
    EarlyDrop,
    /// The frame cannot be rewritten within its slot, or no slot was free for a fragment of it.
    SlotTooSmall,
    /// No slot was free for a frame that came in.
    FramePoolEmpty,
    /// ESP for the gateway's end of a tunnel has an SPI that no security association has.
    SpiUnknown,
    /// ESP is too short for what its algorithm puts around a packet, or no multiple of its block.
    EspLength,
    /// The integrity check of an ESP packet failed.
    IcvWrong,
    /// Padding or next header of an ESP packet cannot be, or what it carries is of neither IP version. Its integrity is right.
    EspTrailer,
    /// The sequence number of an ESP packet was received before, or is left of the window.
    Replayed,
    /// A fragment of an ESP packet came for the gateway's end of a tunnel, or one was to leave in transport mode.
    TunnelFragment,
    /// A packet out of a tunnel is ESP for the gateway's end of a tunnel once more.
    TunnelNested,
    /// A dummy packet of the peer (RFC 4303, section 2.6), which is to be dropped.
    TunnelDummy,
    /// Congestion was marked on an outer packet, and the inner one cannot carry the mark (RFC 6040).
    TunnelCongestion,
    /// All sequence numbers of a security association have been used.
    EspSequence,
    /// A security association has reached its hard lifetime.
    SaExpired,
    /// ESP came encapsulated in UDP, and its security association's is not, or the other way round.
    TunnelEncapsulation,
    /// A NAT on the way to a tunnel's peer is kept open by a single byte.
    NatKeepalive,
    /// A router on the way to a tunnel's peer has told the MTU of its link.
    TunnelPathMtu,
    /// A fragment of an outer packet waits for the others: the last one to come has its bytes.
    TunnelReassembly,
    /// The route to a tunnel's peer leads into a tunnel.
    TunnelLoop,
    /// No security association of the tunnel may carry the packet.
    TunnelSelector,
    /// The packet came in clear, and selectors say that it must come through a tunnel.
    TunnelRequired,
    /// The tunnel has no security association out.
    SaMissing,
    /// The tunnel's peer has no fixed address, and has not been heard yet.
    TunnelPeerUnknown,
    /// The header error control of an ATM cell is wrong.
    AtmHec,
    /// An idle or unassigned ATM cell.
    AtmIdle,
    /// An ATM cell of management that nothing here answers: OAM or resource management.
    AtmManagement,
    /// An OAM loopback cell of an ATM connection that ends here.
    AtmLoopback,
    /// The CRC-10 of an OAM cell is wrong.
    AtmOamCrc,
    /// An ATM cell of a virtual channel that neither an interface of the line nor a cross-connection has.
    AtmVcUnknown,
    /// A cell of an AAL5 PDU whose further cells are still to come: the last one has its bytes.
    Aal5Reassembly,
    /// A cell of an AAL5 PDU that is longer than the interface takes.
    Aal5TooLong,
    /// The last cell of an AAL5 PDU whose length does not fit the number of cells.
    Aal5Length,
    /// The last cell of an AAL5 PDU whose CRC is wrong.
    Aal5Crc,
    /// The last cell of an AAL5 PDU that its sender gave up.
    Aal5Aborted,
    /// A PDU carries neither IP nor Ethernet as the virtual channel's encapsulation has them.
    AtmEncapsulation,
    /// The frame check sequence of an Ethernet frame bridged over ATM is wrong.
    AtmBridgedFcs,
    /// A control packet of a PPP session, or of PPPoE discovery, that the gateway takes in or answers.
    PppControl,
    /// A PPP or PPPoE packet is malformed.
    PppMalformed,
    /// A PPPoE packet of no session here, or of discovery that nobody here takes part in.
    PppSessionUnknown,
    /// The PPP session, or its IP version, is not open.
    PppNotOpen,
    /// Authentication of a PPP session has failed.
    PppAuthentication,
    /// The other end of a PPP session insists on another address than the policy's.
    PppAddress,
}

/// Description of a reason, for operators.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The reason described.
    pub reason: Reason,
    /// Name in every log, counter and trace, in kebab case.
    pub name: &'static str,
    /// Cause, for the manual.
    pub cause: &'static str,
    /// Remedy, for the manual.
    pub remedy: &'static str,
}

impl Reason {
    /// Every reason with its name, cause and remedy, in the order of the enum.
    pub const ALL: [Entry; 123] = [
        Entry {
            reason: Reason::LinkTruncated,
            name: "link-truncated",
            cause: "The frame is shorter than its link-layer header.",
            remedy: "Look for a faulty cable, driver or capture; the sender is not at fault.",
        },
        Entry {
            reason: Reason::EthertypeUnsupported,
            name: "ethertype-unsupported",
            cause: "The frame carries neither IPv4 nor IPv6 nor ARP.",
            remedy: "None needed; wirerate does not bridge other protocols.",
        },
        Entry {
            reason: Reason::VlanUnknown,
            name: "vlan-unknown",
            cause: "The frame is in a VLAN that no interface of the policy has.",
            remedy: "Add an interface with that `parent` and `vlan`, or stop sending the VLAN to this port.",
        },
        Entry {
            reason: Reason::OtherHost,
            name: "other-host",
            cause: "The frame's link-layer destination is another machine.",
            remedy: "None needed on a shared link; otherwise check the interface's `mac` in the policy.",
        },
        Entry {
            reason: Reason::OtherDrop,
            name: "other-drop",
            cause: "Linux forwards the packet from an interface that the policy does not name (zone `other`) out by one that it names.",
            remedy: "Accept it by a rule with `from = \"other\"`, or `\"other > wan\" = \"accept\"` under [default]; or name that interface in the policy; or keep Linux from forwarding (net.ipv4.ip_forward=0).",
        },
        Entry {
            reason: Reason::LinkBroadcast,
            name: "link-broadcast",
            cause: "A packet for one host came in a link-layer broadcast or multicast.",
            remedy: "Find the sender: hosts must not do this (RFC 1122, section 3.3.6).",
        },
        Entry {
            reason: Reason::Ipv4Truncated,
            name: "ipv4-truncated",
            cause: "The frame ends within the IPv4 header.",
            remedy: "Look for a faulty sender or a capture with a small snap length.",
        },
        Entry {
            reason: Reason::Ipv4Version,
            name: "ipv4-version",
            cause: "The Ethernet type says IPv4, the version field does not.",
            remedy: "Find the sender; this is malformed on purpose or by a fault.",
        },
        Entry {
            reason: Reason::Ipv4HeaderLength,
            name: "ipv4-header-length",
            cause: "The IPv4 header length is below 20 bytes or past the end of the packet.",
            remedy: "Find the sender; this is malformed on purpose or by a fault.",
        },
        Entry {
            reason: Reason::Ipv4TotalLength,
            name: "ipv4-total-length",
            cause: "The IPv4 total length is smaller than the header or larger than the frame.",
            remedy: "Look for a link that cuts frames, or a capture with a small snap length.",
        },
        Entry {
            reason: Reason::Ipv4Checksum,
            name: "ipv4-checksum",
            cause: "The IPv4 header checksum is wrong.",
            remedy: "Look for a faulty link or memory upstream; if all packets of one host fail, its checksum offload was captured before the card filled it in.",
        },
        Entry {
            reason: Reason::Ipv4SourceRoute,
            name: "ipv4-source-route",
            cause: "The packet carries a source-route option.",
            remedy: "None; source routing is refused (RFC 6274, section 3.13.2.3).",
        },
        Entry {
            reason: Reason::Ipv6Truncated,
            name: "ipv6-truncated",
            cause: "The frame ends within the IPv6 header or one of its extension headers.",
            remedy: "Look for a faulty sender or a capture with a small snap length.",
        },
        Entry {
            reason: Reason::Ipv6Version,
            name: "ipv6-version",
            cause: "The Ethernet type says IPv6, the version field does not.",
            remedy: "Find the sender; this is malformed on purpose or by a fault.",
        },
        Entry {
            reason: Reason::Ipv6PayloadLength,
            name: "ipv6-payload-length",
            cause: "The IPv6 payload length is larger than the frame.",
            remedy: "Look for a link that cuts frames, or a capture with a small snap length.",
        },
        Entry {
            reason: Reason::Ipv6HeaderChain,
            name: "ipv6-header-chain",
            cause: "The packet has more extension headers, or longer ones, than are looked through.",
            remedy: "None; such chains exist to get past firewalls (RFC 7045, RFC 9098).",
        },
        Entry {
            reason: Reason::Ipv6SourceRoute,
            name: "ipv6-source-route",
            cause: "The packet carries a type 0 routing header.",
            remedy: "None; it is deprecated (RFC 5095).",
        },
        Entry {
            reason: Reason::TransportTruncated,
            name: "transport-truncated",
            cause: "The packet ends within its TCP, UDP or ICMP header.",
            remedy: "Find the sender; this is malformed on purpose or by a fault.",
        },
        Entry {
            reason: Reason::TransportLength,
            name: "transport-length",
            cause: "The TCP data offset or the UDP length does not fit the packet.",
            remedy: "Find the sender; this is malformed on purpose or by a fault.",
        },
        Entry {
            reason: Reason::TransportChecksum,
            name: "transport-checksum",
            cause: "The TCP, UDP or ICMP checksum of a packet that would open or close a connection is wrong.",
            remedy: "Look for a faulty link upstream. In captures taken on the sending machine, set `checksum = \"ignore\"` under [limit]: the card fills it in later.",
        },
        Entry {
            reason: Reason::SourceMartian,
            name: "source-martian",
            cause: "The source is an address that no host can have: unspecified, loopback, multicast, broadcast, reserved, mapped (::ffff:0:0/96), or the gateway's own.",
            remedy: "Find the sender behind that interface; it is misconfigured or forging.",
        },
        Entry {
            reason: Reason::DestinationMartian,
            name: "destination-martian",
            cause: "The destination is an address that is never routed: unspecified, loopback, reserved, mapped (::ffff:0:0/96), or a group within a host.",
            remedy: "Find the sender behind that interface; it is misconfigured.",
        },
        Entry {
            reason: Reason::SourceSpoofed,
            name: "source-spoofed",
            cause: "The source address is not at home behind the interface that the packet came in by.",
            remedy: "If it is legitimate, add the missing route, or set `source-check` of the interface to loose.",
        },
        Entry {
            reason: Reason::Land,
            name: "land",
            cause: "Source and destination, address and port, are the same.",
            remedy: "None; this is an attack (LAND) or a badly broken host.",
        },
        Entry {
            reason: Reason::MulticastUnrouted,
            name: "multicast-unrouted",
            cause: "The destination is a multicast group that neither a [[multicast-route]] of the policy nor Linux's multicast forwarding cache has, or whose route leads to no interface.",
            remedy: "None where nobody has joined the group. Else look at `ip mroute` and the log of the multicast daemon (igmpproxy, smcroute), or add a [[multicast-route]].",
        },
        Entry {
            reason: Reason::MulticastInterface,
            name: "multicast-interface",
            cause: "A packet to a multicast group came in by another interface than its route says: it would go round in a loop, or reach hosts twice.",
            remedy: "Compare `from` of the [[multicast-route]], or the incoming interface in `ip mroute`, with where the source is.",
        },
        Entry {
            reason: Reason::MulticastTtl,
            name: "multicast-ttl",
            cause: "The time to live of a packet to a multicast group is 1, or not above the TTL threshold of any interface that its route leads to.",
            remedy: "Have the sender use a larger one (`IP_MULTICAST_TTL`, 1 by default), or lower the threshold.",
        },
        Entry {
            reason: Reason::MulticastCopy,
            name: "multicast-copy",
            cause: "A copy of a packet to a multicast group was lost, as no slot of memory was free for it.",
            remedy: "Look for a queue that is full: frames wait there.",
        },
        Entry {
            reason: Reason::BroadcastDirected,
            name: "broadcast-directed",
            cause: "The destination is the broadcast address of a network behind the gateway.",
            remedy: "None; directed broadcasts are refused (RFC 2644).",
        },
        Entry {
            reason: Reason::FragmentWaits,
            name: "fragment-waits",
            cause: "A fragment came before the first of its datagram, which has the ports; it waits.",
            remedy: "None needed.",
        },
        Entry {
            reason: Reason::FragmentTiny,
            name: "fragment-tiny",
            cause: "A first fragment too small to hold the transport header, or one that would overwrite it.",
            remedy: "None; such fragments exist to get past firewalls (RFC 1858, RFC 3128).",
        },
        Entry {
            reason: Reason::FragmentOverlap,
            name: "fragment-overlap",
            cause: "A fragment overlaps another one of its datagram.",
            remedy: "None; the datagram is refused (RFC 5722, RFC 8200 section 4.5).",
        },
        Entry {
            reason: Reason::FragmentOversize,
            name: "fragment-oversize",
            cause: "The fragments make up more than a datagram may hold.",
            remedy: "None if it is past 65,535 bytes; else raise `datagram` under [limit.fragments].",
        },
        Entry {
            reason: Reason::FragmentTableFull,
            name: "fragment-table-full",
            cause: "More fragments wait than memory was set aside for, a source has its share of datagrams, or the datagram made room for newer ones before its first fragment came.",
            remedy: "If that is legitimate traffic, raise `datagrams` or `held` under [limit.fragments].",
        },
        Entry {
            reason: Reason::FragmentTimeout,
            name: "fragment-timeout",
            cause: "The first fragment of the datagram did not come in time.",
            remedy: "Look for loss upstream; many of these from one source are an attack.",
        },
        Entry {
            reason: Reason::FlowNotOpen,
            name: "flow-not-open",
            cause: "A TCP segment that opens nothing belongs to no connection.",
            remedy: "None after a connection has timed out or the gateway was restarted; to take over connections under way set `pickup = \"accept\"` under [limit].",
        },
        Entry {
            reason: Reason::FlowTableFull,
            name: "flow-table-full",
            cause: "As many flows exist as memory was set aside for.",
            remedy: "Raise `flows` under [limit], or find who opens so many.",
        },
        Entry {
            reason: Reason::FlowLimit,
            name: "flow-limit",
            cause: "The source has as many flows open as it may.",
            remedy: "Raise `flows-per-source` under [limit], or find out what that host is doing.",
        },
        Entry {
            reason: Reason::TcpFlags,
            name: "tcp-flags",
            cause: "The TCP flags are a combination that no TCP sends.",
            remedy: "None; this is a port scanner (null, Xmas, SYN-FIN).",
        },
        Entry {
            reason: Reason::TcpWindow,
            name: "tcp-window",
            cause: "The segment lies outside the window of its connection.",
            remedy: "None if rare; if a host has many, a middlebox before the gateway rewrites sequence numbers: set `tcp-window = \"off\"` under [limit].",
        },
        Entry {
            reason: Reason::TcpState,
            name: "tcp-state",
            cause: "The segment does not fit the state of its connection, which was reset or closed.",
            remedy: "None needed; the connection has to be opened again.",
        },
        Entry {
            reason: Reason::IcmpUnrelated,
            name: "icmp-unrelated",
            cause: "An ICMP error quotes a packet of no connection, or an ICMP reply answers nothing.",
            remedy: "None needed; late errors are common after a connection has ended.",
        },
        Entry {
            reason: Reason::IcmpWindow,
            name: "icmp-window",
            cause: "An ICMP error quotes a segment that its TCP connection has not under way.",
            remedy: "None if rare; many of these are an attack on connections by somebody who does not see them (RFC 5927).",
        },
        Entry {
            reason: Reason::NatPorts,
            name: "nat-ports",
            cause: "The translation has no free port left, or no free block of ports.",
            remedy: "Give the translation more outside addresses, or lower the UDP timeout.",
        },
        Entry {
            reason: Reason::NatQuota,
            name: "nat-quota",
            cause: "The inside address holds as many ports of the translation as it may, or all of as many blocks.",
            remedy: "Raise `quota` or `blocks-per-host` of the translation, or find out what that host is doing.",
        },
        Entry {
            reason: Reason::NatTableFull,
            name: "nat-table-full",
            cause: "As many translations exist as memory was set aside for.",
            remedy: "Raise `flows` under [limit].",
        },
        Entry {
            reason: Reason::NatClash,
            name: "nat-clash",
            cause: "The translated packet could not be told from another connection's.",
            remedy: "None; for protocols without ports, two inside hosts cannot share an outside address towards one peer.",
        },
        Entry {
            reason: Reason::NatNoAddress,
            name: "nat-no-address",
            cause: "The interface that the packet would leave by has no address to masquerade it with, or that which it came in by none to redirect it to; or a prefix translation has no address for the packet's.",
            remedy: "Give the interface an address of that IP version, or see to it that Linux gets one (DHCP, PPP): `wirerate ports` shows those that there are.",
        },
        Entry {
            reason: Reason::Nat64Address,
            name: "nat64-address",
            cause: "NAT64, or a CLAT, does not lead to the IPv4 destination: loopback, multicast and the like, an address of the gateway itself, or, under the well-known prefix 64:ff9b::/96, a private address.",
            remedy: "For private addresses use a prefix of your own (`prefix` of the translation and of DNS64), or with a CLAT a route of IPv4; the gateway itself has an IPv6 address.",
        },
        Entry {
            reason: Reason::Nat64Packet,
            name: "nat64-packet",
            cause: "NAT64, or a CLAT, has no counterpart for the packet in the other IP version: it is no TCP, UDP or ICMP echo, a fragment of ICMP, or has a source route.",
            remedy: "None; such traffic needs one IP version all the way.",
        },
        Entry {
            reason: Reason::FlowRevoked,
            name: "flow-revoked",
            cause: "The policy that now holds, or a dynamic set as it is now, does not let in the flow that an earlier one did, and has ended it.",
            remedy: "See the rule's name beside the packet, or the default of the zone pair; have a rule accept the connection if it is to go on.",
        },
        Entry {
            reason: Reason::FlowTranslation,
            name: "flow-translation",
            cause: "The translation of the flow, or the address that it gave, is gone from the policy, which has ended the flow.",
            remedy: "None needed: the next connection is translated by the policy that now holds. To keep connections, keep name and addresses of the translation.",
        },
        Entry {
            reason: Reason::WanDown,
            name: "wan-down",
            cause: "The WAN that the flow left by is down, which has ended the flow; or a policy route has its flows dropped while its WAN is down.",
            remedy: "None needed: the next connection goes by a WAN that is up. `on-failure = \"keep\"` has flows stay with their WAN until it is back, `when-down = \"fall-back\"` has those of a policy route go by the others.",
        },
        Entry {
            reason: Reason::HelperIncomplete,
            name: "helper-incomplete",
            cause: "On a connection with a helper, a segment before this one is missing, or the segment ends within a line or message that may announce something, or the packet is a fragment.",
            remedy: "None needed for a few: the sender repeats what is lost. A client that writes its commands byte by byte does not get on: let it use passive mode.",
        },
        Entry {
            reason: Reason::HelperRefused,
            name: "helper-refused",
            cause: "What a connection with a helper announces cannot be carried out: no port of the translation is free, all memory for expected connections is in use, or earlier announcements have not been acknowledged yet.",
            remedy: "None needed for a few: the sender repeats the line. Else give the translation more ports or addresses.",
        },
        Entry {
            reason: Reason::NoServer,
            name: "no-server",
            cause: "No server of the translation (`kind = \"balance\"`) is up: TCP gets a reset, UDP a port unreachable.",
            remedy: "Bring a server back, and take `down` out of its target.",
        },
        Entry {
            reason: Reason::ServerDown,
            name: "server-down",
            cause: "The server that the flow was translated to is down, which has ended the flow.",
            remedy: "None needed: the next connection goes to a server that is up. `on-failure = \"keep\"` leaves connections with their server.",
        },
        Entry {
            reason: Reason::InterfaceGone,
            name: "interface-gone",
            cause: "The interface that the flow or the frame came in by, or waits to leave by, is gone from the policy, or has no port: it was deleted, or its device failed.",
            remedy: "None needed where it was taken away on purpose; an interface that was only renamed is another one. `wirerate ports` shows those without a port.",
        },
        Entry {
            reason: Reason::RouteMissing,
            name: "route-missing",
            cause: "No route leads to the destination.",
            remedy: "Add a route, or a default route.",
        },
        Entry {
            reason: Reason::RouteBlackhole,
            name: "route-blackhole",
            cause: "The route to the destination is a blackhole.",
            remedy: "None; the policy says so.",
        },
        Entry {
            reason: Reason::RouteUnreachable,
            name: "route-unreachable",
            cause: "The route to the destination says unreachable.",
            remedy: "None; the policy says so.",
        },
        Entry {
            reason: Reason::NeighbourUnknown,
            name: "neighbour-unknown",
            cause: "The link-layer address of the next hop is not known: it did not answer when it was asked for.",
            remedy: "Check that the next hop is up and on that interface's network.",
        },
        Entry {
            reason: Reason::NeighbourWaits,
            name: "neighbour-waits",
            cause: "The link-layer address of the next hop is being asked for; the packet waits.",
            remedy: "None; after 3 seconds it is answered or dropped.",
        },
        Entry {
            reason: Reason::NeighbourQueueFull,
            name: "neighbour-queue-full",
            cause: "More packets wait for the link-layer address of the next hop (101), or of all next hops (1024), than may.",
            remedy: "Check that the next hop answers. If many hosts that are not there are called, somebody scans the network.",
        },
        Entry {
            reason: Reason::NeighbourProxied,
            name: "neighbour-proxied",
            cause: "A host on the link asks, by ARP or neighbour discovery, for an outside address of a translation that no interface has: it is told the gateway's link-layer address.",
            remedy: "None needed.",
        },
        Entry {
            reason: Reason::HandedOff,
            name: "handed-off",
            cause: "The packet belongs to a flow of another worker, and is on its way there.",
            remedy: "None needed.",
        },
        Entry {
            reason: Reason::HandoffFull,
            name: "handoff-full",
            cause: "The packet belongs to a flow of another worker, or waits for a scheduler of another worker, which has more to do than it can, or no free frame.",
            remedy: "If it goes on, compare the workers in `wirerate status`: one source, or one forwarded connection, cannot be shared out among several. A tree of queues can: `workers = \"divided\"` in its root.",
        },
        Entry {
            reason: Reason::PeerOwns,
            name: "peer-owns",
            cause: "The packet opens a flow that the second gateway owns (`sync-owner`), or belongs to none that is known here: it is handed over.",
            remedy: "None needed.",
        },
        Entry {
            reason: Reason::PeerLinkFull,
            name: "peer-link-full",
            cause: "The packet is for the second gateway, which owns its flow (`sync-owner`), and the link to it does not take the packet: its queue is full, or it has no route.",
            remedy: "Look at the link's rate and at what routers send by the wrong gateway: only first packets should be handed over. If a flood does it, limit it in front.",
        },
        Entry {
            reason: Reason::TtlExpired,
            name: "ttl-expired",
            cause: "The time to live, or hop limit, has run out.",
            remedy: "None if it is traceroute; otherwise look for a routing loop.",
        },
        Entry {
            reason: Reason::PacketTooBig,
            name: "packet-too-big",
            cause: "The packet is larger than the outgoing interface carries and must not be fragmented.",
            remedy: "None; the sender learns the size. If connections hang, something drops the ICMP message: set `mss = \"mtu\"` on the interface.",
        },
        Entry {
            reason: Reason::LinkLocal,
            name: "link-local",
            cause: "A packet from or to a link-local address would leave its link, or neighbour discovery has already crossed a router (its hop limit is not 255).",
            remedy: "None; link-local addresses are not routed (RFC 4291, section 2.5.6).",
        },
        Entry {
            reason: Reason::RuleDrop,
            name: "rule-drop",
            cause: "A rule says drop.",
            remedy: "See the rule's name beside the packet; put a rule that accepts before it.",
        },
        Entry {
            reason: Reason::RuleReject,
            name: "rule-reject",
            cause: "A rule says reject.",
            remedy: "See the rule's name beside the packet; put a rule that accepts before it.",
        },
        Entry {
            reason: Reason::SynProxied,
            name: "syn-proxied",
            cause: "A rule says `syn = \"proxy\"`: the gateway answers the SYN with a cookie, and no connection is remembered until that is acknowledged. Or the server still has an older connection with the same ports, which the gateway resets.",
            remedy: "None needed. Many such answers without new connections are a flood of SYNs.",
        },
        Entry {
            reason: Reason::DefaultDrop,
            name: "default-drop",
            cause: "No rule decided, and the default of the zone pair is drop.",
            remedy: "Add a rule that accepts, or change the pair under [default].",
        },
        Entry {
            reason: Reason::DefaultReject,
            name: "default-reject",
            cause: "No rule decided, and the default of the zone pair is reject.",
            remedy: "Add a rule that accepts, or change the pair under [default].",
        },
        Entry {
            reason: Reason::RateLimit,
            name: "rate-limit",
            cause: "More came than the `rate` of the rule that accepts lets through.",
            remedy: "Raise the rule's `rate`, or find who sends so much.",
        },
        Entry {
            reason: Reason::ConnectionLimit,
            name: "connection-limit",
            cause: "As many connections exist as the `connections` of the rule that accepts allows.",
            remedy: "Raise the rule's `connections`, or find who opens so many.",
        },
        Entry {
            reason: Reason::Policed,
            name: "policed",
            cause: "The packet came faster than the meter of its traffic class allows: the meter has `drop` for the packet's colour, or no instance left.",
            remedy: "Raise `rate` or `burst` of the [[meter]], write a code point in the place of `drop`, or raise `instances` where the meter counts each source or flow.",
        },
        Entry {
            reason: Reason::QueueFull,
            name: "queue-full",
            cause: "More frames wait for the interface than its queue holds.",
            remedy: "The interface, or the rate of its queue, is too slow for its traffic; a higher `limit` of its [[queue]], or `queue` under [limit], only adds delay.",
        },
        Entry {
            reason: Reason::EarlyDrop,
            name: "early-drop",
            cause: "Active queue management (`drop` of the [[queue]]) dropped the packet to keep the queue short, so that senders slow down.",
            remedy: "None needed; `ecn = true` marks packets instead, where their connections can.",
        },
        Entry {
            reason: Reason::SlotTooSmall,
            name: "slot-too-small",
            cause: "The frame cannot be rewritten within its slot, or no slot was free for a fragment of it.",
            remedy: "Turn off segmentation offload where frames come from (`ethtool -K IFACE gro off gso off tso off`): 16,128 bytes are the most that a slot holds.",
        },
        Entry {
            reason: Reason::FramePoolEmpty,
            name: "frame-pool-empty",
            cause: "No slot was free for a frame that came in: more than 65,536 frames wait before the ports.",
            remedy: "A shorter `queue` under [limit], or a higher `rate` of the interface that they wait for.",
        },
        Entry {
            reason: Reason::SpiUnknown,
            name: "spi-unknown",
            cause: "ESP for the gateway's end of a tunnel has an SPI that no security association has.",
            remedy: "The peer's SPI out must be one in of the tunnel here, for the address that the packet is sent to.",
        },
        Entry {
            reason: Reason::EspLength,
            name: "esp-length",
            cause: "ESP is too short for what its algorithm puts around a packet, or no multiple of its block.",
            remedy: "Both ends must have one algorithm; else a link on the way truncates packets.",
        },
        Entry {
            reason: Reason::IcvWrong,
            name: "icv-wrong",
            cause: "The integrity check of an ESP packet failed.",
            remedy: "Keys or algorithms of both ends differ, or the packet was changed on its way.",
        },
        Entry {
            reason: Reason::EspTrailer,
            name: "esp-trailer",
            cause: "Padding or next header of an ESP packet cannot be, or what it carries is of neither IP version. Its integrity is right.",
            remedy: "The peer's implementation is at fault, or uses another mode than the tunnel's `mode`.",
        },
        Entry {
            reason: Reason::Replayed,
            name: "replayed",
            cause: "The sequence number of an ESP packet was received before, or has left the window.",
            remedy: "Packets are repeated or much reordered on their way, or somebody replays them. Expected after the peer began its numbers anew.",
        },
        Entry {
            reason: Reason::TunnelFragment,
            name: "tunnel-fragment",
            cause: "A fragment of a packet for the gateway's end of a tunnel overlaps another, came twice, or is of one of more than 10,240 bytes. Or a fragment was to leave by a tunnel in transport mode, which takes whole packets alone.",
            remedy: "If it is no attack, the peer's tunnel needs a smaller MTU, so that its packets cross the way whole; in transport mode, whoever sends larger datagrams than the tunnel takes.",
        },
        Entry {
            reason: Reason::TunnelNested,
            name: "tunnel-nested",
            cause: "What came out of a tunnel is ESP for the gateway's end of a tunnel once more.",
            remedy: "A tunnel within another ends on another gateway.",
        },
        Entry {
            reason: Reason::TunnelDummy,
            name: "tunnel-dummy",
            cause: "A dummy packet of the peer (RFC 4303, section 2.6), which is to be dropped.",
            remedy: "None needed: it hides how much the peer sends.",
        },
        Entry {
            reason: Reason::TunnelCongestion,
            name: "tunnel-congestion",
            cause: "Congestion was marked on an outer packet, and the inner one cannot carry the mark (RFC 6040).",
            remedy: "None needed: the loss tells the sender.",
        },
        Entry {
            reason: Reason::EspSequence,
            name: "esp-sequence",
            cause: "All sequence numbers of a security association have been used: 2^32, or 2^64 with `esn`; live, also those that could be reserved on disk.",
            remedy: "New keys and SPIs at both ends; where the log says that no numbers could be reserved, room and permission in the directory of the state.",
        },
        Entry {
            reason: Reason::SaExpired,
            name: "sa-expired",
            cause: "The packet's security association has reached its hard lifetime, in bytes, packets or time.",
            remedy: "New keys and SPIs at both ends, before the end: its soft lifetime tells when.",
        },
        Entry {
            reason: Reason::TunnelEncapsulation,
            name: "tunnel-encapsulation",
            cause: "ESP came encapsulated in UDP and its tunnel is not, or the other way round.",
            remedy: "`udp` must be the same at both ends.",
        },
        Entry {
            reason: Reason::NatKeepalive,
            name: "nat-keepalive",
            cause: "A single byte to UDP port 4500 of a tunnel's end, which keeps a NAT on the way open (RFC 3948).",
            remedy: "None needed.",
        },
        Entry {
            reason: Reason::TunnelPathMtu,
            name: "tunnel-path-mtu",
            cause: "A router on the way to a tunnel's peer told an MTU that one of the tunnel's packets did not fit.",
            remedy: "None needed: the tunnel takes it in, and tells senders for ten minutes.",
        },
        Entry {
            reason: Reason::TunnelReassembly,
            name: "tunnel-reassembly",
            cause: "A fragment of a packet for the gateway's end of a tunnel. Its bytes are kept, and the last fragment to come goes on as the whole packet.",
            remedy: "None needed. Without fragments the tunnel is faster: give the peer's tunnel a smaller MTU.",
        },
        Entry {
            reason: Reason::TunnelLoop,
            name: "tunnel-loop",
            cause: "The route to a tunnel's peer, who has moved there, leads into a tunnel.",
            remedy: "A route to the peer by an interface that is no tunnel, or `follow = false`.",
        },
        Entry {
            reason: Reason::TunnelSelector,
            name: "tunnel-selector",
            cause: "No selector of a tunnel's security associations lets them carry the packet that came out of the tunnel, or was to leave by it: translated, perhaps, to what they do not carry.",
            remedy: "`local-net` and `remote-net` must be the same at both ends, each from its own side; exempt the tunnel's traffic from [[nat]].",
        },
        Entry {
            reason: Reason::TunnelRequired,
            name: "tunnel-required",
            cause: "The packet came in clear, and `local-net` and `remote-net` of a tunnel say that such packets must come through the tunnel (RFC 4301, section 5.2.1).",
            remedy: "Find who sends around the tunnel, or forges. Networks that are reached without the tunnel, own ones too, belong into its `direct`.",
        },
        Entry {
            reason: Reason::SaMissing,
            name: "sa-missing",
            cause: "The packet was to leave by a tunnel that has no security association out: an IKE daemon has not agreed on one yet, or the one that was there has been deleted, or all that there are are other workers' own (RFC 9611).",
            remedy: "Look at the IKE daemon: `swanctl --list-sas`, its log, its connection to the gateway (`[gateway] xfrm`). A connection with `start_action = trap` begins with such a packet, the first of which is lost. Without a daemon, `wirerate sa add`.",
        },
        Entry {
            reason: Reason::TunnelPeerUnknown,
            name: "tunnel-peer-unknown",
            cause: "The packet was to leave by a tunnel with `remote = \"any\"`, whose peer has sent no genuine packet yet that says where it is. Its first one counts an eighth of a second after it came.",
            remedy: "The peer must send first. If it does: `spi-unknown` and `icv-wrong` tell of SPIs and keys that are not the same at both ends.",
        },
        Entry {
            reason: Reason::AtmHec,
            name: "atm-hec",
            cause: "The header error control (HEC) of an ATM cell is wrong: nothing in its header can be trusted.",
            remedy: "Look for errors of the line: noise margin, attenuation, interleaving of the DSL.",
        },
        Entry {
            reason: Reason::AtmIdle,
            name: "atm-idle",
            cause: "An idle or unassigned ATM cell (VPI 0, VCI 0), which fills the line and carries nothing.",
            remedy: "None needed; carriers usually leave them out.",
        },
        Entry {
            reason: Reason::AtmManagement,
            name: "atm-management",
            cause: "An ATM cell of management (OAM or resource management) on a virtual channel or path that ends here, other than a loopback for this end.",
            remedy: "None needed; wirerate answers OAM loopbacks alone: switch continuity checks of this channel off at the other end.",
        },
        Entry {
            reason: Reason::AtmLoopback,
            name: "atm-loopback",
            cause: "An OAM loopback cell (ITU-T I.610) of a virtual channel or path that ends here, for its end: it is answered. Dropped for this reason, it came above the bounds on answers.",
            remedy: "None needed: the other end tests the connection.",
        },
        Entry {
            reason: Reason::AtmOamCrc,
            name: "atm-oam-crc",
            cause: "The CRC-10 of an OAM cell (ITU-T I.610) is wrong.",
            remedy: "Look for errors of the line: noise margin, attenuation, interleaving of the DSL.",
        },
        Entry {
            reason: Reason::AtmVcUnknown,
            name: "atm-vc-unknown",
            cause: "An ATM cell of a virtual channel that neither an interface of the line nor a cross-connection has.",
            remedy: "Compare `vc` under [interface.NAME.atm], and `ends` under [[cross-connect]], with what the provider says: VPI and VCI.",
        },
        Entry {
            reason: Reason::Aal5Reassembly,
            name: "aal5-reassembly",
            cause: "A cell of an AAL5 PDU whose further cells are still to come. Its bytes are kept, and the last cell of the PDU goes on as the whole packet.",
            remedy: "None needed.",
        },
        Entry {
            reason: Reason::Aal5TooLong,
            name: "aal5-too-long",
            cause: "A cell of an AAL5 PDU that is longer than the interface's `mtu` and its headers; or the last cell of the PDU before was lost, again and again.",
            remedy: "Raise `mtu` of the interface to what the other end sends, or lower it there.",
        },
        Entry {
            reason: Reason::Aal5Length,
            name: "aal5-length",
            cause: "The last cell of an AAL5 PDU whose length does not fit the number of cells: cells were lost, or the last one of the PDU before was.",
            remedy: "Look for loss of cells: errors of the line (`atm-hec`), or a congested or policing switch on the channel's way.",
        },
        Entry {
            reason: Reason::Aal5Crc,
            name: "aal5-crc",
            cause: "The last cell of an AAL5 PDU whose CRC-32 is wrong: bits are wrong, or cells were lost and others came in their place.",
            remedy: "Look for errors of the line; if all PDUs fail, the channel is not AAL5.",
        },
        Entry {
            reason: Reason::Aal5Aborted,
            name: "aal5-aborted",
            cause: "The last cell of an AAL5 PDU of length 0: its sender gave it up half-way.",
            remedy: "Look for a sender that runs out of buffers.",
        },
        Entry {
            reason: Reason::AtmEncapsulation,
            name: "atm-encapsulation",
            cause: "A PDU carries neither IP nor Ethernet as the virtual channel's encapsulation has them (RFC 2684).",
            remedy: "Compare `encapsulation` under [interface.NAME.atm], and `link` (\"ip\" routed, \"ethernet\" bridged), with the other end's; of PPP over ATM an [interface.NAME.ppp].",
        },
        Entry {
            reason: Reason::AtmBridgedFcs,
            name: "atm-bridged-fcs",
            cause: "The frame check sequence of an Ethernet frame bridged over ATM is wrong, though the CRC-32 of its PDU is right.",
            remedy: "Look for a faulty bridge or Ethernet behind the other end of the channel.",
        },
        Entry {
            reason: Reason::PppControl,
            name: "ppp-control",
            cause: "A control packet of a PPP session, or of PPPoE discovery: the session takes it in, and nothing further follows, or it is answered. Dropped for this reason, discovery may also have come above the bounds on answers.",
            remedy: "None needed.",
        },
        Entry {
            reason: Reason::PppMalformed,
            name: "ppp-malformed",
            cause: "A PPP or PPPoE packet whose lengths, tags or options do not fit it, or of another version of PPPoE.",
            remedy: "Find who sends it; a capture at `terminate` shows it.",
        },
        Entry {
            reason: Reason::PppSessionUnknown,
            name: "ppp-session-unknown",
            cause: "A PPPoE packet of a session identifier or sender that no session here has; or of discovery: an offer that nobody here has asked for, or that `service` or `ac-name` do not fit, a request for a service that no server here offers or whose sessions others have, a refusal.",
            remedy: "The other end may still have a session from before a restart: its own echoes end it. Compare `service` and `ac-name` under [interface.NAME.ppp] with the other end's.",
        },
        Entry {
            reason: Reason::PppNotOpen,
            name: "ppp-not-open",
            cause: "A packet came by, or was to leave by, a PPP session that is not open, or not for its IP version; or a control packet came before its time (RFC 1661, section 3.4).",
            remedy: "Look at what the session lacks: `wirerate capture --stage terminate` shows its control packets. Of IPv6, the interface needs an IPv6 address.",
        },
        Entry {
            reason: Reason::PppAuthentication,
            name: "ppp-authentication",
            cause: "The other end of a PPP session has refused `user` and `password`, or had wrong ones; or it demands a protocol that `authentication` does not allow.",
            remedy: "Compare `user`, `password` and `authentication` under [interface.NAME.ppp] with the other end's.",
        },
        Entry {
            reason: Reason::PppAddress,
            name: "ppp-address",
            cause: "The other end of a PPP session insists on an IPv4 address of this end that `addresses` does not have; the log of a live gateway says which.",
            remedy: "Write the address that the provider gives into `addresses` of the interface, with the prefix length 32.",
        },
    ];

    /// Number of reasons.
    pub const COUNT: usize = Reason::ALL.len();

    /// Name, cause and remedy.
    pub const fn entry(self) -> &'static Entry {
        &Reason::ALL[self as usize]
    }

    /// Its name in every log, counter and trace, in kebab case.
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// The reason of that name.
    pub fn of_name(name: &str) -> Option<Reason> {
        Reason::ALL.iter().find(|entry| entry.name == name).map(|entry| entry.reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
