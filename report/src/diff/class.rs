//! Packets that are of another traffic class in another policy.

use analysis::{ClassComparison, ClassDifference, Effort, Outcome, compare_classes};
use dataplane::tables::CompileError;
use policy::Policy;
use replay::number::count;
use serde_json::{Value, json};
use wire::vlan::{DropEligible, Priority};

use super::Rest;
use crate::region::Numbered;
use crate::text::{Text, Tone};

/// Classes of two policies, compared.
pub(super) struct Classes<'a> {
    old: &'a Policy,
    new: &'a Policy,
    comparison: ClassComparison,
    numbered: Numbered,
}

impl<'a> Classes<'a> {
    /// Compares the classes; `None` where neither policy has any.
    pub(super) fn of(
        old: &'a Policy,
        new: &'a Policy,
        effort: Effort<'_>,
    ) -> Result<Option<Classes<'a>>, CompileError> {
        if old.classes.is_empty() && new.classes.is_empty() {
            return Ok(None);
        }
        let comparison = compare_classes(old, new, effort)?;
        let numbered = Numbered::new(
            comparison.names.clone(),
            comparison.macs.clone(),
            comparison.sets.clone(),
            &[old, new],
        );
        Ok(Some(Classes { old, new, comparison, numbered }))
    }

    /// Completeness of the comparison.
    pub(super) fn outcome(&self) -> Outcome {
        self.comparison.outcome
    }

    /// The first regions, in words.
    pub(super) fn regions(&self, most: usize) -> Vec<String> {
        let first = self.comparison.differences.iter().take(most);
        first.map(|one| self.numbered.words(&one.region)).collect()
    }

    /// Adds the regions, in words.
    pub(super) fn tell(&self, text: &mut Text, rest: &Rest<'_>) {
        let found = self.comparison.differences.len();
        if found == 0 {
            return;
        }
        let many = count(
            found as u64,
            "region of packets changes its traffic class",
            "regions of packets change their traffic class",
        );
        text.plain("\n");
        text.line(Tone::Care, many);
        for (number, one) in self.comparison.differences.iter().take(rest.most).enumerate() {
            let words = self.numbered.words(&one.region);
            let tags = priorities(&one.priorities);
            let tags = if tags.is_empty() { String::new() } else { format!("; pcp {}", tags.join(", ")) };
            text.plain("\n");
            text.line(Tone::Heading, format_args!("{}. {words}{tags}", number + 1));
            for (verb, name) in [("was    ", self.name_before(one)), ("becomes", self.name_after(one))] {
                let name = name.map_or_else(|| "of no class".to_owned(), |name| format!("\"{name}\""));
                text.plain(format_args!("   {verb}  {name}\n"));
            }
        }
        rest.tell(text, found);
    }

    pub(super) fn json(&self, most: usize) -> Value {
        let region = |one: &ClassDifference| {
            json!({
                "packets": self.numbered.to_json(&one.region),
                "pcp": priorities(&one.priorities),
                "old": self.name_before(one),
                "new": self.name_after(one),
            })
        };
        json!({
            "complete": self.comparison.outcome == Outcome::Complete,
            "found": self.comparison.differences.len(),
            "regions": self.comparison.differences.iter().take(most).map(region).collect::<Vec<_>>(),
        })
    }

    fn name_before(&self, one: &ClassDifference) -> Option<&str> {
        Some(self.old.classes.get(one.old?)?.name.as_str())
    }

    fn name_after(&self, one: &ClassDifference) -> Option<&str> {
        Some(self.new.classes.get(one.new?)?.name.as_str())
    }
}

/// Priorities of VLAN tags in words; none for all of them.
fn priorities(priorities: &[Priority]) -> Vec<String> {
    if priorities.len() == Priority::COUNT {
        return Vec::new();
    }
    let word = |priority: &Priority| {
        let point = priority.code_point().value();
        let has_other =
            priorities.iter().filter(|other| other.code_point() == priority.code_point()).count() > 1;
        match priority.eligible() {
            DropEligible::Yes if has_other => None,
            DropEligible::Yes => Some(format!("{point} with dei")),
            DropEligible::No if has_other => Some(point.to_string()),
            DropEligible::No => Some(format!("{point} without dei")),
        }
    };
    priorities.iter().filter_map(word).collect()
}
