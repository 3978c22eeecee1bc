//! Keywords and their values, and the nearest keyword to a mistyped one.

/// Returns the value of the keyword `word`, ignoring case.
pub fn meaning<T: Clone>(words: &[(&str, T)], word: &str) -> Option<T> {
    words.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, value)| value.clone())
}

/// Returns the keyword of `known` that `word` most likely stands for.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let most = word.chars().count().div_ceil(3).min(3);
    known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(&word, &known.to_lowercase()), known))
        .filter(|(distance, known)| *distance <= most || (word.len() > 2 && known.starts_with(&word)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Returns the hint for a mistyped word: the nearest of `known`, or else `otherwise`.
pub fn did_you_mean<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    nearest(word, known).map_or_else(otherwise, |nearest| format!("did you mean \"{nearest}\"?"))
}

#[cfg(test)]
mod tests {
    use super::{did_you_mean, meaning, nearest};

    #[test]
    fn the_nearest_word_is_one_slip_away_or_begins_alike() {
        let known = ["source", "source-check", "destination", "mtu"];
        assert_eq!(nearest("sorce", known), Some("source"));
        assert_eq!(nearest("dest", known), Some("destination"));
        assert_eq!(nearest("MTU", known), Some("mtu"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn a_hint_names_the_nearest_word_or_says_something_else() {
        let hint = |word| did_you_mean(word, ["lan", "wan"], || "the zones are: lan, wan".to_owned());
        assert_eq!(hint("lam"), "did you mean \"lan\"?");
        assert_eq!(hint("outside"), "the zones are: lan, wan");
    }

    #[test]
    fn a_word_has_its_meaning_in_any_case() {
        let words = [("off", 0), ("mtu", 1)];
        assert_eq!(meaning(&words, "MTU"), Some(1));
        assert_eq!(meaning(&words, "mt"), None);
    }
}
