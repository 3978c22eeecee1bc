//! The chips and mappings that are shipped are right, without a warning, and say where each number comes from.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chip::description::{self, Chip};
use chip::machine::PROGRAMS;
use chip::mapping::{self, Program};
use dataplane::{Tables, extent};

fn files(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(dir);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty(), "{}", dir.display());
    files
}

fn chips() -> BTreeMap<String, Chip> {
    let mut chips = BTreeMap::new();
    for path in files("chips") {
        let checked = description::load(&path).unwrap();
        assert_eq!(checked.diagnostics, [], "{}", path.display());
        let chip = checked.chip.unwrap();
        assert_eq!(
            Some(chip.name.as_str()),
            path.file_stem().unwrap().to_str(),
            "a chip has its file's name"
        );
        chips.insert(chip.name.clone(), chip);
    }
    chips
}

#[test]
fn every_parameter_of_every_chip_has_a_source() {
    for path in files("chips") {
        let checked = description::load(&path).unwrap();
        let chip = checked.chip.unwrap();
        assert!(checked.parameters.len() > 30, "{}", path.display());
        for parameter in &checked.parameters {
            let source = chip.source_of(parameter);
            assert!(source.is_some_and(|source| source.text.len() > 5), "{}: {parameter}", path.display());
        }
        assert!(chip.assumed().count() > 0);
    }
}

#[test]
fn every_chip_counts_time_without_rounding() {
    for chip in chips().values() {
        assert!(chip.ticks_per_second().is_some(), "{}", chip.name);
    }
}

#[test]
fn every_mapping_is_right_for_its_chip() {
    let chips = chips();
    for path in files("chips/mappings") {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = mapping::chip_of(&text).unwrap();
        let checked = mapping::load(&path, &chips[&name]).unwrap();
        assert_eq!(checked.diagnostics, [], "{}", path.display());
        let mapping = checked.mapping.unwrap();
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with(&name), "{}", path.display());
        // With nothing but the rings to hold, all fits.
        let found = mapping::check_fit(&chips[&name], &mapping, &checked.lines, &[], &[]);
        assert_eq!(found, [], "{}", path.display());
    }
}

/// `CHIP-pool` is the default mapping, `CHIP-split` the one for programs too long for it, and `CHIP-tunnel` that for the longest.
#[test]
fn every_chip_has_a_mapping_whose_stores_hold_any_policy() {
    for (name, chip) in chips() {
        let shipped = ["pool", "split", "tunnel"].map(|kind| format!("../chips/mappings/{name}-{kind}.toml"));
        let shipped = shipped.map(|path| Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
        assert!(shipped[0].exists(), "{name}");
        for path in files("policies") {
            let policy = policy::check::load(&path).unwrap().policy.unwrap();
            let tables = Tables::compile(&policy, 1).unwrap();
            let programs: Vec<Program<'_>> = extent::programs(&tables)
                .into_iter()
                .chain(PROGRAMS)
                .map(|(name, instructions)| Program { name, instructions })
                .collect();
            let fits = |path: &PathBuf| {
                let checked = mapping::load(path, &chip).unwrap();
                mapping::check_fit(&chip, &checked.mapping.unwrap(), &checked.lines, &[], &programs)
                    .is_empty()
            };
            let mut there = shipped.iter().filter(|path| path.exists());
            assert!(there.any(fits), "{name}: {}", path.display());
        }
    }
}

/// The TOML blocks of the manual's page on chips.
fn blocks() -> Vec<String> {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/add/chip.md")).unwrap();
    page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_page_on_chips_describes_tetra() {
    let mut blocks = blocks();
    let row = blocks.pop().unwrap();
    let shipped = |path: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
    };
    let tetra = shipped("chips/tetra.toml");
    assert_eq!(blocks.join("\n"), tetra[tetra.find("name =").unwrap()..]);
    assert_eq!(row, shipped("chips/mappings/tetra-row.toml"));
}
