//! Input of classifier measurements: rules and headers from files, and rules as lines of a ClassBench filter set.

use std::fmt::{self, Write};
use std::net::Ipv4Addr;
use std::path::Path;

use dataplane::compile::patterns;
use lookup::classify::{AddressSpan, Admit, Header, Pattern, PortSpan};
use policy::import;

use super::trace::{self, BadHeader, ICMP, TCP};
use crate::failure::{Failure, InputError, PolicyError, UsageError};
use crate::{file, policy_file, screen};

/// Reads rules: a ClassBench filter set, or a policy.
pub(crate) fn rules(path: &Path) -> Result<Vec<Pattern>, Failure> {
    let source = file::read(path).map_err(|error| InputError::Read { path: path.to_path_buf(), error })?;
    let text = String::from_utf8_lossy(&source);
    let mut lines = text.lines().map(str::trim).filter(|line| !(line.is_empty() || line.starts_with('#')));
    let policy = if lines.next().is_some_and(|line| line.starts_with('@')) {
        let importer = import::find("classbench")
            .ok_or_else(|| UsageError::Unknown { what: "importer", word: "classbench".to_owned() })?;
        let imported = importer
            .import(&source, None)
            .map_err(|error| PolicyError::Import { path: path.to_path_buf(), error })?;
        let name = path.display();
        if let Some(missing) = imported.untranslated.first() {
            let left = screen::count(imported.count.untranslated as u64, "rule", "rules");
            screen::warning(&format_args!("{left} of {name} left out; the first: {missing}"));
        }
        imported.policy
    } else {
        policy_file::load(path)?.policy
    };
    let file = || path.display().to_string();
    let patterns = patterns(&policy).map_err(|error| PolicyError::Compile { file: file(), error })?;
    if patterns.is_empty() { Err(PolicyError::NoRules { file: file() }.into()) } else { Ok(patterns) }
}

/// Reads the headers of a trace.
pub(crate) fn headers(path: &Path) -> Result<Vec<Header>, Failure> {
    let text = file::read_text(path).map_err(|error| InputError::Read { path: path.to_path_buf(), error })?;
    let bad = |line, problem| InputError::Trace { path: path.to_path_buf(), line, problem };
    let mut headers = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if !(line.trim().is_empty() || line.starts_with('#')) {
            headers.push(trace::header(line).map_err(|problem| bad(number, problem))?);
        }
    }
    if headers.is_empty() { Err(bad(0, BadHeader::None).into()) } else { Ok(headers) }
}

/// The pattern, of IPv4 packets alone: a trace has no others.
pub(crate) fn in_v4(pattern: Pattern) -> Pattern {
    Pattern { v6: Admit::No, ..pattern }
}

/// Reason that a pattern has no ClassBench form: a condition on a field that ClassBench lacks, or more than one on a field
/// that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unlike(&'static str);

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A pattern as lines of a ClassBench filter set, each with `position` as one more column. Sets of addresses and lists
/// of ports or protocols are a line for each combination.
pub(crate) fn filters(pattern: &Pattern, position: usize, to: &mut String) -> Result<(), Unlike> {
    let any = Pattern::default();
    let unlike = [
        (pattern.from != any.from || pattern.to != any.to, "zones"),
        (!(pattern.ingress.is_empty() && pattern.egress.is_empty()), "interfaces"),
        (pattern.dscp != any.dscp, "DSCP"),
        (pattern.source_macs != any.source_macs, "MAC addresses"),
        (pattern.v4 != any.v4, "IPv6"),
    ];
    if let Some((_, what)) = unlike.into_iter().find(|(is_so, _)| *is_so) {
        return Err(Unlike(what));
    }
    let ports = |spans: &[PortSpan]| -> Vec<(u16, u16)> {
        let all: Vec<_> = spans.iter().map(|span| (span.first, span.last)).collect();
        if all.is_empty() { vec![(0, u16::MAX)] } else { all }
    };
    let (sports, dports) = (ports(&pattern.sports), ports(&pattern.dports));
    let protocols: Vec<(u8, u8)> = match pattern.protocols.as_slice() {
        [] => vec![(0, 0)],
        some => some.iter().map(|protocol| (*protocol, 0xff)).collect(),
    };
    let flags: Vec<(u16, u16)> = match (pattern.icmp.as_slice(), pattern.tcp_mask) {
        ([], 0) => vec![(0, 0)],
        ([], mask) if pattern.protocols == [TCP] => {
            vec![(u16::from_be_bytes([pattern.tcp_value, 0]), u16::from_be_bytes([mask, 0]))]
        }
        (messages, 0) if pattern.protocols == [ICMP] => messages
            .iter()
            .map(|message| match message.code {
                None => (u16::from_be_bytes([message.kind, 0]), 0xff00),
                Some(code) => (u16::from_be_bytes([message.kind, code]), 0xffff),
            })
            .collect(),
        _ => return Err(Unlike("flags or types of more than one protocol")),
    };
    let sources = prefixes(pattern.source.as_deref());
    let destinations = prefixes(pattern.destination.as_deref());
    let lines = [sources.len(), destinations.len(), sports.len(), dports.len(), protocols.len(), flags.len()];
    if lines.iter().product::<usize>() > MOST_LINES {
        return Err(Unlike("large sets"));
    }
    for source in &sources {
        for destination in &destinations {
            for sport in &sports {
                for dport in &dports {
                    for protocol in &protocols {
                        for flag in &flags {
                            // Writing to a String cannot fail.
                            let _ = writeln!(
                                to,
                                "@{source}\t{destination}\t{} : {}\t{} : {}\t{:#04x}/{:#04x}\t{:#06x}/{:#06x}\t{position}",
                                sport.0, sport.1, dport.0, dport.1, protocol.0, protocol.1, flag.0, flag.1
                            );
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// The most lines that stand for one rule.
const MOST_LINES: usize = 1_000;

/// The fewest IPv4 prefixes that cover the spans.
fn prefixes(spans: Option<&[AddressSpan]>) -> Vec<String> {
    let Some(spans) = spans else { return vec!["0.0.0.0/0".to_owned()] };
    let mut all = Vec::new();
    for span in spans.iter().filter(|span| !span.v6) {
        let (mut first, last) = (span.first, span.last);
        while first <= last {
            let mut size: u128 = if first == 0 { 1 << 32 } else { 1 << first.trailing_zeros().min(32) };
            while size > last - first + 1 {
                size /= 2;
            }
            all.push(format!("{}/{}", Ipv4Addr::from_bits(first as u32), 32 - size.trailing_zeros()));
            first += size;
        }
    }
    all
}
