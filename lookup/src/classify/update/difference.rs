//! The fewest edits from one list to another (Myers, An O(ND) Difference Algorithm and Its Variations, 1986).

/// A step through the two lists, from the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next item of both is the same.
    Keep,
    /// The next item of the old list goes.
    Remove,
    /// The next item of the new list comes.
    Insert,
}

/// Steps from `old` to `new`, of which at most `most` are edits; `None` where it takes more.
pub(super) fn steps<T: PartialEq>(old: &[T], new: &[T], most: usize) -> Option<Vec<Step>> {
    let same = |(one, other): &(&T, &T)| one == other;
    let front = old.iter().zip(new).take_while(same).count();
    let (old, new) = (&old[front..], &new[front..]);
    let back = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let (old, new) = (&old[..old.len() - back], &new[..new.len() - back]);
    let mut steps = vec![Step::Keep; front];
    steps.extend(between(old, new, most)?);
    steps.extend(vec![Step::Keep; back]);
    Some(steps)
}

/// [`steps`] of lists whose ends are not alike.
///
/// `reach[k + most]` is how far in the old list one gets with so many edits, ending where the place in the old list is k
/// more than that in the new one.
fn between<T: PartialEq>(old: &[T], new: &[T], most: usize) -> Option<Vec<Step>> {
    if old.len().abs_diff(new.len()) > most {
        return None;
    }
    let offset = most as isize + 1;
    let mut reach: Vec<isize> = vec![-1; 2 * most + 3];
    reach[(offset + 1) as usize] = 0;
    let mut before = Vec::new();
    let (ends, news) = (old.len() as isize, new.len() as isize);
    for edits in 0..=most as isize {
        before.push(reach.clone());
        for k in (-edits..=edits).step_by(2) {
            let mut at = from(&reach, offset, k, edits).0;
            while at < ends && at - k < news && old[at as usize] == new[(at - k) as usize] {
                at += 1;
            }
            reach[(offset + k) as usize] = at;
            if at >= ends && at - k >= news {
                return Some(back(&before, offset, ends, news));
            }
        }
    }
    None
}

/// Returns the end of the last edit on diagonal `k`, and the kind of edit.
fn from(reach: &[isize], offset: isize, k: isize, edits: isize) -> (isize, Step) {
    let (removed, inserted) = (reach[(offset + k - 1) as usize] + 1, reach[(offset + k + 1) as usize]);
    if k == -edits || (k != edits && removed <= inserted) {
        (inserted, Step::Insert)
    } else {
        (removed, Step::Remove)
    }
}

/// The steps, from the end to the front and turned round.
fn back(before: &[Vec<isize>], offset: isize, ends: isize, news: isize) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut at, mut k) = (ends, ends - news);
    for (edits, reach) in before.iter().enumerate().rev() {
        let (start, edit) = from(reach, offset, k, edits as isize);
        steps.extend((start..at).map(|_| Step::Keep));
        if edits > 0 {
            steps.push(edit);
        }
        (at, k) = match edit {
            Step::Insert => (start, k + 1),
            _ => (start - 1, k - 1),
        };
    }
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The fewest edits, by the longest list that is part of both.
    fn fewest(old: &[u8], new: &[u8]) -> usize {
        let mut longest = vec![vec![0; new.len() + 1]; old.len() + 1];
        for (i, one) in old.iter().enumerate() {
            for (j, other) in new.iter().enumerate() {
                longest[i + 1][j + 1] =
                    if one == other { longest[i][j] + 1 } else { longest[i][j + 1].max(longest[i + 1][j]) };
            }
        }
        old.len() + new.len() - 2 * longest[old.len()][new.len()]
    }

    proptest! {
        #[test]
        fn steps_lead_from_one_to_the_other_and_are_fewest(
            old in vec(0..4u8, 0..30),
            new in vec(0..4u8, 0..30),
            most in 0..40usize,
        ) {
            let fewest = fewest(&old, &new);
            let steps = steps(&old, &new, most);
            prop_assert_eq!(steps.is_some(), fewest <= most);
            let Some(steps) = steps else { return Ok(()) };
            let (mut olds, mut news, mut edits) = (old.iter(), new.iter(), 0);
            let mut made: Vec<&u8> = Vec::new();
            for step in steps {
                match step {
                    Step::Keep => {
                        let kept = olds.next();
                        prop_assert_eq!(kept, news.next());
                        made.extend(kept);
                    }
                    Step::Remove => {
                        prop_assert!(olds.next().is_some());
                        edits += 1;
                    }
                    Step::Insert => {
                        made.extend(news.next());
                        edits += 1;
                    }
                }
            }
            prop_assert!(made.into_iter().eq(&new) && olds.next().is_none());
            prop_assert_eq!(edits, fewest);
        }
    }
}
