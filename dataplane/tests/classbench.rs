//! Generated rules in ClassBench's format: what is written, the importer reads back, and it compiles to the same patterns.

use std::fmt::Write;

use dataplane::compile;
use lookup::classify::Pattern;
use lookup::classify::generate::{Filter, Like, rules};
use policy::import;

#[test]
fn what_is_written_is_read_back() {
    let importer = import::find("classbench").unwrap();
    for like in [Like::Acl, Like::Fw, Like::Ipc] {
        let filters = rules(like, 3_000, 1);
        let text = filters.iter().fold(String::new(), |mut text, filter| {
            writeln!(text, "{filter}").unwrap();
            text
        });
        let imported = importer.import(text.as_bytes(), None).unwrap();
        assert_eq!(imported.count.untranslated, 0, "{like:?}: {:?}", imported.untranslated.first());
        let patterns: Vec<Pattern> = filters.iter().map(Filter::pattern).collect();
        assert_eq!(compile::patterns(&imported.policy).unwrap(), patterns, "{like:?}");
    }
}
