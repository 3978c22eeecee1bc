//! Policy names derived from the source: comments, chains, interfaces, sets.

use std::collections::HashSet;

/// Longest derived name, in characters; a policy's may have 64, and a number may follow.
const LONGEST: usize = 56;

/// Nearest valid name; `None` if no character of `text` is valid.
pub(super) fn valid(text: &str) -> Option<String> {
    let mut name = String::with_capacity(text.len().min(LONGEST));
    for c in text.chars() {
        if name.len() >= LONGEST {
            break;
        }
        let first = name.is_empty();
        if c.is_ascii_alphanumeric() || c == '_' || !first && "-.:/+".contains(c) {
            name.push(c);
        } else if !first && !name.ends_with('-') {
            name.push('-');
        }
    }
    let kept = name.trim_end_matches('-').len();
    name.truncate(kept);
    (!name.is_empty()).then_some(name)
}

/// Generator of unique names.
#[derive(Debug, Default)]
pub(super) struct Unique {
    given: HashSet<String>,
    counts: std::collections::HashMap<String, usize>,
}

impl Unique {
    /// Returns `wanted`, with a number appended if already taken.
    pub(super) fn name(&mut self, wanted: &str) -> String {
        if self.given.insert(wanted.to_owned()) {
            return wanted.to_owned();
        }
        let count = self.counts.entry(wanted.to_owned()).or_insert(1);
        loop {
            *count += 1;
            let name = format!("{wanted}-{count}");
            if self.given.insert(name.clone()) {
                return name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_unique() {
        assert_eq!(valid("allow ssh (from the office)").as_deref(), Some("allow-ssh-from-the-office"));
        assert_eq!(valid("-x, é y").as_deref(), Some("x-y"));
        assert_eq!(valid("… !"), None);
        assert_eq!(valid(&"a".repeat(300)).map(|name| name.len()), Some(LONGEST));
        let mut unique = Unique::default();
        let names: Vec<String> = ["a", "a-2", "a", "a"].iter().map(|name| unique.name(name)).collect();
        assert_eq!(names, ["a", "a-2", "a-3", "a-4"]);
    }
}
