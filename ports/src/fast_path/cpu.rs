//! Numbers of CPUs, by the kernel's lists.

use std::fs;
use std::thread;

/// Number of CPUs for which there must be memory: the highest number that one can have, plus 1.
pub(crate) fn possible() -> usize {
    let ranges = read("possible");
    ranges.iter().map(|[_, last]| last + 1).max().unwrap_or_else(running)
}

/// Number of CPUs that run now.
pub(crate) fn online() -> usize {
    let ranges = read("online");
    if ranges.is_empty() { running() } else { ranges.iter().map(|[first, last]| last - first + 1).sum() }
}

fn read(list: &str) -> Vec<[usize; 2]> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/{list}"));
    parse(&text.unwrap_or_default()).unwrap_or_default()
}

/// Ranges of a list such as `0-3,8`, from first to last.
fn parse(list: &str) -> Option<Vec<[usize; 2]>> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = [first.parse().ok()?, last.parse().ok()?];
        (range[0] <= range[1]).then_some(range)
    };
    list.trim().split(',').map(range).collect()
}

fn running() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_ranges_and_single_numbers() {
        assert_eq!(parse("0-3,8\n"), Some(vec![[0, 3], [8, 8]]));
        assert_eq!(parse("0\n"), Some(vec![[0, 0]]));
        assert_eq!([parse(""), parse("3-1"), parse("0-x")], [None, None, None]);
        assert!(online() >= 1 && possible() >= online());
    }
}
