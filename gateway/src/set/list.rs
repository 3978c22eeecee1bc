//! Text of a list of addresses: what files and URLs of dynamic sets hold, as blocklists are published.
//!
//! A line has one address, network or range (`192.0.2.1-192.0.2.9`); what follows behind a space, a comma, a semicolon or `#` is
//! left aside, as are empty lines and comments. Every other line is a fault, and is named.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most bytes of a list.
pub(crate) const MOST_BYTES: u64 = 64 << 20;

/// Most lines with faults that are kept, each with its text; all are counted.
const MOST_FAULTS: usize = 65_536;

/// Most characters of a line's text that are kept.
const MOST_TEXT: usize = 60;

/// Prefixes of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    /// Prefixes, ascending, each once.
    pub(crate) prefixes: Arc<[IpNet]>,
    /// Lines that say no address.
    pub(crate) faults: Arc<Faults>,
}

/// Lines of a list that say no address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Number of such lines.
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) first: Vec<LineFault>,
}

/// A line of a list that says no address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineFault {
    /// Number of the line, from 1.
    pub line: u64,
    /// Text of the line, or its beginning.
    pub text: String,
    /// The fault, in words.
    pub fault: String,
}

/// Reason that a text is no list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoList {
    /// More lines without an address than addresses: an error page, another format.
    #[error("{lines} of its lines say no address and {prefixes} do: line {}, \"{}\": {}", .first.line, .first.text, .first.fault)]
    Garbage {
        /// Lines without an address.
        lines: u64,
        /// Addresses.
        prefixes: usize,
        /// First of those lines.
        first: LineFault,
    },
    /// More elements than the set may have.
    #[error("it has {0} elements, and `size` of the set is {1}")]
    TooLong(usize, u32),
}

impl List {
    /// Reads the text of a list for a set of at most `size` elements.
    ///
    /// # Errors
    /// More lines without than with an address; more elements than the set may have.
    pub(crate) fn read(text: &[u8], size: u32) -> Result<List, NoList> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let (mut prefixes, mut faults) = (Vec::new(), Faults::default());
        for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
            if let Err(fault) = read_line(line, &mut prefixes) {
                faults.note(number, line, fault);
            }
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        if faults.count > prefixes.len() as u64 {
            if let Some(first) = faults.first.first().cloned() {
                return Err(NoList::Garbage { lines: faults.count, prefixes: prefixes.len(), first });
            }
        }
        if prefixes.len() > size as usize {
            return Err(NoList::TooLong(prefixes.len(), size));
        }
        Ok(List { prefixes: prefixes.into(), faults: Arc::new(faults) })
    }
}

impl Faults {
    fn note(&mut self, line: u64, text: &[u8], fault: &str) {
        self.count += 1;
        if self.first.len() < MOST_FAULTS {
            let text = String::from_utf8_lossy(&text[..text.len().min(4 * MOST_TEXT)]);
            let text = text.trim().chars().take(MOST_TEXT).collect::<String>().escape_debug().to_string();
            self.first.push(LineFault { line, text, fault: fault.to_owned() });
        }
    }
}

/// Reads a line.
fn read_line(line: &[u8], prefixes: &mut Vec<IpNet>) -> Result<(), &'static str> {
    let Ok(line) = std::str::from_utf8(line) else {
        // A comment may be in any encoding.
        let is_comment = line.trim_ascii_start().first().is_none_or(|first| b"#;".contains(first));
        return if is_comment { Ok(()) } else { Err("the line is no text") };
    };
    let line = line.trim();
    let word = line.split([' ', '\t', ',', ';', '#']).next().unwrap_or("");
    if word.is_empty() && line.chars().next().is_none_or(|first| "#;".contains(first)) {
        return Ok(());
    }
    match word.split_once('-') {
        Some((first, last)) => read_range(first, last, prefixes),
        None => {
            prefixes.push(prefix(word)?);
            Ok(())
        }
    }
}

/// Address or network; bits behind the prefix are left aside.
///
/// # Errors
/// The fault, in words.
pub(crate) fn prefix(word: &str) -> Result<IpNet, &'static str> {
    if let Ok(address) = IpAddr::from_str(word) {
        return Ok(address.into());
    }
    let network = IpNet::from_str(word).map_err(|_| "neither an address nor a network")?;
    if network.prefix_len() == 0 {
        return Err("the network has all addresses");
    }
    Ok(network.trunc())
}

fn read_range(first: &str, last: &str, prefixes: &mut Vec<IpNet>) -> Result<(), &'static str> {
    let address =
        |word: &str| IpAddr::from_str(word).map_err(|_| "neither an address, a network nor a range");
    let ends = (address(first)?, address(last)?);
    if ends.0 > ends.1 {
        return Err("the range ends before it begins");
    }
    let before = prefixes.len();
    match ends {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            prefixes.extend(Ipv4Subnets::new(first, last, 0).map(IpNet::V4));
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            prefixes.extend(Ipv6Subnets::new(first, last, 0).map(IpNet::V6));
        }
        _ => return Err("the range begins and ends with different IP versions"),
    }
    if prefixes[before..].iter().any(|prefix| prefix.prefix_len() == 0) {
        prefixes.truncate(before);
        return Err("the range has all addresses");
    }
    Ok(())
}

/// Elements that one list has and another has not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Elements that the newer list has.
    pub(crate) added: Vec<IpNet>,
    /// Elements that the older list had.
    pub(crate) removed: Vec<IpNet>,
}

impl Difference {
    /// Compares two lists, each ascending.
    pub(crate) fn between(old: &[IpNet], new: &[IpNet]) -> Difference {
        let mut difference = Difference::default();
        let (mut old, mut new) = (old.iter().copied().peekable(), new.iter().copied().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (Some(old), Some(new)) => old.cmp(new),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return difference,
            };
            if order.is_le() {
                let gone = old.next();
                difference.removed.extend(gone.filter(|_| order.is_lt()));
            }
            if order.is_ge() {
                let come = new.next();
                difference.added.extend(come.filter(|_| order.is_gt()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nets(words: &[&str]) -> Vec<IpNet> {
        let mut nets: Vec<IpNet> = words.iter().map(|word| word.parse().unwrap()).collect();
        nets.sort_unstable();
        nets
    }

    fn read(text: &str) -> List {
        List::read(text.as_bytes(), 1000).unwrap()
    }

    #[test]
    fn lists_as_they_are_published() {
        // Spamhaus, FireHOL, a table of numbers, and one saved on Windows.
        let drop = "; Spamhaus DROP List\n1.10.16.0/20 ; SBL256894\n1.19.0.0/16 ; SBL434604\n";
        assert_eq!(&*read(drop).prefixes, nets(&["1.10.16.0/20", "1.19.0.0/16"]));
        let firehol = "#\n# firehol_level1\n\n0.0.0.0/8\n5.134.128.0/19 # a note\n224.0.0.0/3\n";
        assert_eq!(&*read(firehol).prefixes, nets(&["0.0.0.0/8", "5.134.128.0/19", "224.0.0.0/3"]));
        let table = "192.0.2.7,2026-11-01,ssh\n192.0.2.9,2026-11-02,smtp\n2001:db8::9\t22\n";
        assert_eq!(&*read(table).prefixes, nets(&["192.0.2.7/32", "192.0.2.9/32", "2001:db8::9/128"]));
        let windows = "\u{feff}192.0.2.7\r\n\r\n# \r\n192.0.2.8/31\r\n";
        assert_eq!(&*read(windows).prefixes, nets(&["192.0.2.7/32", "192.0.2.8/31"]));
        for list in [drop, firehol, table, windows] {
            assert_eq!(read(list).faults.count, 0, "{list}");
        }
    }

    #[test]
    fn ranges_become_prefixes_and_host_bits_are_left_aside() {
        let list = read("192.0.2.1-192.0.2.6\n198.51.100.9/24\n2001:db8::-2001:db8::3\n192.0.2.4\n");
        let wanted = ["192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/31", "192.0.2.6/32", "192.0.2.4/32"];
        let mut wanted = nets(&wanted);
        wanted.extend(nets(&["198.51.100.0/24", "2001:db8::/126"]));
        wanted.sort_unstable();
        assert_eq!(&*list.prefixes, wanted);
    }

    #[test]
    fn each_line_without_an_address_is_named() {
        let text = "192.0.2.1\n<html>\n192.0.2.300\n192.0.2.2\n0.0.0.0/0\n192.0.2.9-192.0.2.3\n192.0.2.1-2001:db8::1\n\
                    192.0.2.3\n0.0.0.0-255.255.255.255\n192.0.2.4\n192.0.2.5\n,192.0.2.9\n192.0.2.6\n192.0.2.7\n192.0.2.8\n\u{1b}[31mred\n";
        let faults = read(text).faults;
        let lines: Vec<u64> = faults.first.iter().map(|fault| fault.line).collect();
        assert_eq!((lines, faults.count), (vec![2, 3, 5, 6, 7, 9, 12, 16], 8));
        assert_eq!(faults.first[2].fault, "the network has all addresses");
        assert!(!faults.first[7].text.contains('\u{1b}'), "{:?}", faults.first[7]);
        let latin = b"# caf\xe9\n192.0.2.1\ncaf\xe9\n";
        assert_eq!(List::read(latin, 9).unwrap().faults.first[0].line, 3);
    }

    #[test]
    fn an_error_page_is_no_list_and_a_list_may_be_empty() {
        let page = b"<!doctype html>\n<title>502</title>\n192.0.2.1\n";
        assert!(matches!(List::read(page, 9), Err(NoList::Garbage { lines: 2, prefixes: 1, .. })));
        assert!(List::read(b"", 9).unwrap().prefixes.is_empty());
        assert_eq!(List::read(b"192.0.2.1\n192.0.2.2\n", 1), Err(NoList::TooLong(2, 1)));
    }

    #[test]
    fn ten_megabytes_of_garbage_take_bounded_memory() {
        let mut text = Vec::new();
        for number in 0..400_000u32 {
            text.extend_from_slice(
                format!("{}\nnonsense {number}\n", std::net::Ipv4Addr::from(number)).as_bytes(),
            );
        }
        assert!(text.len() > 10 << 20);
        let list = List::read(&text, 1 << 20).unwrap();
        assert_eq!((list.prefixes.len(), list.faults.count), (400_000, 400_000));
        assert_eq!(list.faults.first.len(), MOST_FAULTS);
        assert_eq!(list.faults.first[1].line, 4);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = List::read(&text, 100);
        }

        #[test]
        fn a_difference_leads_from_one_list_to_the_other(
            old in proptest::collection::btree_set(0u32..64, 0..40),
            new in proptest::collection::btree_set(0u32..64, 0..40),
        ) {
            let nets = |set: &std::collections::BTreeSet<u32>| -> Vec<IpNet> {
                set.iter().map(|bits| IpAddr::from(std::net::Ipv4Addr::from(*bits)).into()).collect()
            };
            let Difference { added, removed } = Difference::between(&nets(&old), &nets(&new));
            prop_assert_eq!(added, nets(&new.difference(&old).copied().collect()));
            prop_assert_eq!(removed, nets(&old.difference(&new).copied().collect()));
        }
    }
}
