//! Targets and their options.

use std::net::IpAddr;

use crate::import::chain::Verdict;
use crate::import::note::{NoteKind, Why};
use crate::import::word;
use crate::model::{AddressRange, Hairpin, Helper, MssClamp, NatAction, PortRange, PortUse, RejectWith};
use wire::{Dscp, Nanos};

/// Target of a rule.
#[derive(Debug, Default)]
pub(super) struct Target {
    name: Option<String>,
    goto: bool,
    chain: Option<usize>,
    reject: Option<String>,
    to: Option<String>,
    ports: Option<String>,
    ordered: bool,
    clamp: Option<MssClamp>,
    mark: Option<Dscp>,
    helper: Option<String>,
    add: Option<Vec<String>>,
    renews: bool,
    lasts: Option<Nanos>,
}

/// Addition of packets' sources to a set of ipset.
#[derive(Debug)]
pub(super) struct SetTarget {
    pub(super) set: String,
    /// Lifetime of the element, where it is not the set's.
    pub(super) lasts: Option<Nanos>,
    /// True if the time of an element that is there begins anew.
    pub(super) renews: bool,
}

impl Target {
    pub(super) fn set(&mut self, name: &str, goto: bool, chain: Option<usize>) {
        self.name = Some(name.to_owned());
        self.goto = goto;
        self.chain = chain;
    }

    /// Name of the target.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Reads an option that no match has.
    pub(super) fn option(&mut self, option: &str, arguments: &[&str]) -> Result<(), Why> {
        let argument = arguments.first().map(|word| (*word).to_owned());
        match option {
            "--reject-with" => self.reject = argument,
            "--to-destination" | "--to-source" => self.to = argument,
            "--to" if self.name() == Some("NETMAP") => self.to = argument,
            "--to-ports" => self.ports = argument,
            "--random" | "--random-fully" | "--persistent" => self.ordered = true,
            "--clamp-mss-to-pmtu" => self.clamp = Some(MssClamp::Mtu),
            "--set-mss" => {
                let mss = argument.as_deref().and_then(|word| word.parse().ok()).and_then(word::mss);
                self.clamp =
                    Some(mss.ok_or_else(|| Why::Value(format!("--set-mss {}", arguments.join(" "))))?);
            }
            "--set-dscp" | "--set-dscp-class" if self.name() == Some("DSCP") => {
                let code_point = argument.as_deref().and_then(word::dscp).and_then(Dscp::new);
                let bad = || Why::Value(format!("{option} {}", arguments.join(" ")));
                self.mark = Some(code_point.ok_or_else(bad)?);
            }
            "--checksum-fill" if self.name() == Some("CHECKSUM") => {}
            "--helper" if self.name() == Some("CT") => self.helper = argument,
            "--add-set" if self.name() == Some("SET") => {
                self.add = Some(arguments.iter().map(|&word| word.to_owned()).collect());
            }
            "--exist" if self.name() == Some("SET") => self.renews = true,
            "--timeout" if self.name() == Some("SET") => {
                let seconds = argument.as_deref().and_then(|word| word.parse().ok());
                let seconds: u64 = seconds.ok_or_else(|| Why::Value(arguments.join(" ")))?;
                self.lasts = Some(Nanos::from_secs(seconds)).filter(|&lasts| lasts > Nanos(0));
            }
            "--log-prefix" | "--log-level" | "--log-tcp-sequence" | "--log-tcp-options"
            | "--log-ip-options" | "--log-uid" | "--log-macdecode" | "--nflog-group" | "--nflog-prefix"
            | "--nflog-threshold" | "--nflog-size" => {}
            _ if self.is_foreign() || self.marks() => {}
            _ => return Err(Why::Feature(option.to_owned())),
        }
        Ok(())
    }

    /// True if the target has no counterpart; it is reported as such, whatever its options.
    fn is_foreign(&self) -> bool {
        matches!(self.name(), Some("SYNPROXY" | "CLASSIFY" | "TPROXY" | "NFQUEUE" | "TEE" | "HMARK"))
    }

    /// True if the target marks packets, or takes marks over.
    fn marks(&self) -> bool {
        matches!(self.name(), Some("MARK" | "CONNMARK"))
    }

    /// Addition that the target makes.
    pub(super) fn addition(&mut self) -> Result<Option<SetTarget>, Why> {
        let Some(words) = self.add.take() else { return Ok(None) };
        match words.as_slice() {
            [set, side] if side == "src" => {
                Ok(Some(SetTarget { set: set.clone(), lasts: self.lasts, renews: self.renews }))
            }
            _ => Err(Why::Feature(format!("--add-set {}", words.join(" ")))),
        }
    }

    /// Code point that packets are given.
    pub(super) fn mark(&self) -> Option<Dscp> {
        self.mark
    }

    /// Verdict of the rule, and true if the rule logs.
    pub(super) fn verdict(&self, v6: bool, note: &mut dyn FnMut(NoteKind)) -> Result<(Verdict, bool), Why> {
        let Some(name) = &self.name else { return Ok((Verdict::Continue, false)) };
        if self.ordered {
            note(NoteKind::PortOrder);
        }
        let verdict = match name.as_str() {
            _ if self.marks() => return Err(Why::Mark),
            "ACCEPT" => Verdict::Accept,
            "DROP" => Verdict::Drop,
            "RETURN" => Verdict::Return,
            "CT" if self.helper.is_some() => match self.helper.as_deref() {
                Some("ftp") => Verdict::Help(Helper::Ftp),
                Some("sip") => Verdict::Help(Helper::Sip),
                Some("pptp") => Verdict::Help(Helper::Pptp),
                other => return Err(Why::Feature(format!("--helper {}", other.unwrap_or_default()))),
            },
            "SET" if self.add.is_some() => Verdict::Continue,
            "DSCP" if self.mark.is_some() => Verdict::Continue,
            "NOTRACK" | "CT" => {
                note(NoteKind::Tracked);
                Verdict::Continue
            }
            "CHECKSUM" => {
                note(NoteKind::ChecksumFill);
                Verdict::Continue
            }
            "LOG" | "NFLOG" => return Ok((Verdict::Continue, true)),
            "REJECT" => {
                Verdict::Reject(reject(self.reject.as_deref().unwrap_or("icmp-port-unreachable"), note)?)
            }
            "TCPMSS" => Verdict::Clamp(self.clamp.ok_or_else(|| Why::Feature(name.clone()))?),
            "MASQUERADE" => {
                Verdict::Translate(NatAction::Masquerade { ports: self.port_use(self.ports.as_deref())? })
            }
            "SNAT" => self.source()?,
            "DNAT" => self.destination(v6)?,
            "NETMAP" => {
                let to = self.to.as_deref().ok_or(Why::NatTarget)?;
                let range = word::addresses(to).ok_or_else(|| Why::Value(to.to_owned()))?;
                Verdict::Translate(netmap(range)?)
            }
            "REDIRECT" => Verdict::Translate(redirect(self.ports.as_deref().map(port_range).transpose()?)?),
            _ => match self.chain {
                Some(chain) if self.goto => Verdict::Goto(chain),
                Some(chain) => Verdict::Jump(chain),
                None if name.chars().any(|c| c.is_ascii_lowercase()) => {
                    return Err(Why::Missing(name.clone()));
                }
                None => return Err(Why::Feature(name.clone())),
            },
        };
        Ok((verdict, false))
    }

    fn source(&self) -> Result<Verdict, Why> {
        let to = self.to.as_deref().ok_or(Why::NatTarget)?;
        let (address, ports) = split_port(to);
        let pool = word::addresses(address).ok_or_else(|| Why::Value(to.to_owned()))?;
        Ok(Verdict::Translate(NatAction::Source { pool: vec![pool], ports: self.port_use(ports)? }))
    }

    fn destination(&self, v6: bool) -> Result<Verdict, Why> {
        let to = self.to.as_deref().ok_or(Why::NatTarget)?;
        let (address, ports) = split_port(to);
        let target: IpAddr = address.parse().map_err(|_| Why::NatTarget)?;
        if target.is_ipv6() != v6 {
            return Err(Why::Value(to.to_owned()));
        }
        let range = ports.map(port_range).transpose()?;
        Ok(Verdict::Translate(forward(target, range)))
    }

    fn port_use(&self, ports: Option<&str>) -> Result<PortUse, Why> {
        match ports {
            None => Ok(PortUse::default()),
            Some(ports) => Ok(PortUse { ranges: vec![port_range(ports)?], ..PortUse::default() }),
        }
    }
}

/// Returns a port forward, before the conditions of its rule are known: an inside range in the source is put into `ports`.
pub(in crate::import) fn forward(target: IpAddr, range: Option<PortRange>) -> NatAction {
    let inside = range.filter(|range| range.first != range.last);
    NatAction::Forward {
        vrf: None,
        outside: None,
        ports: inside.into_iter().collect(),
        target,
        target_port: range.map(|range| range.first),
        hairpin: Hairpin::On,
    }
}

/// Returns a translation of a network to another one, before the conditions of its rule are known.
pub(in crate::import) fn netmap(to: AddressRange) -> Result<NatAction, Why> {
    let network = to.network().ok_or(Why::NatTarget)?;
    Ok(NatAction::OneToOne { outside: network, inside: network, hairpin: Hairpin::Off })
}

/// Returns a redirect, before the conditions of its rule are known.
pub(in crate::import) fn redirect(range: Option<PortRange>) -> Result<NatAction, Why> {
    // The source picks any port of a range.
    if range.is_some_and(|range| range.first != range.last) {
        return Err(Why::NatTarget);
    }
    Ok(NatAction::Redirect { ports: Vec::new(), to_port: range.map(|range| range.first) })
}

/// Parses the kind of a reject, by iptables' name.
pub(in crate::import) fn reject(kind: &str, note: &mut dyn FnMut(NoteKind)) -> Result<RejectWith, Why> {
    let short = kind.strip_prefix("icmp6-").or_else(|| kind.strip_prefix("icmp-")).unwrap_or(kind);
    Ok(match short {
        "port-unreachable" | "port-unreach" => RejectWith::PortUnreachable,
        "host-unreachable" | "host-unreach" | "addr-unreachable" | "addr-unreach" => {
            RejectWith::HostUnreachable
        }
        "admin-prohibited" | "admin-prohib" | "adm-prohibited" => RejectWith::AdminProhibited,
        "tcp-reset" | "tcp reset" | "tcp-rst" => RejectWith::TcpReset,
        "net-unreachable" | "net-unreach" | "no-route" => {
            note(nearest(kind));
            RejectWith::HostUnreachable
        }
        "proto-unreachable" | "prot-unreachable" | "proto-unreach" => {
            note(nearest(kind));
            RejectWith::PortUnreachable
        }
        "net-prohibited" | "net-prohib" | "host-prohibited" | "host-prohib" | "policy-fail"
        | "reject-route" => {
            note(nearest(kind));
            RejectWith::AdminProhibited
        }
        _ => return Err(Why::Value(kind.to_owned())),
    })
}

/// Note about a reject whose kind has no exact counterpart.
fn nearest(kind: &str) -> NoteKind {
    NoteKind::NearestReject { kind: kind.to_owned() }
}

/// Splits an address from the ports after its colon; an IPv6 address with ports is in brackets.
fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (address, rest.strip_prefix(':'));
    }
    match text.split_once(':') {
        Some((address, ports)) if !ports.contains(':') => (address, Some(ports)),
        _ => (text, None),
    }
}

fn port_range(text: &str) -> Result<PortRange, Why> {
    let bad = |_| Why::Value(text.to_owned());
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.parse().map_err(bad)?, last.parse().map_err(bad)?);
    if first == 0 || first > last {
        return Err(Why::Value(text.to_owned()));
    }
    Ok(PortRange { first, last })
}
