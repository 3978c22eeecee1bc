//! Rules searched for many headers at once.

use ::policy::import;
use dataplane::compile::patterns;
use lookup::classify::{ALGORITHMS, Algorithm, Bounds, Choice, Header, NO_MATCH, Pattern, Task};
use pyo3::exceptions::PyValueError;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use pyo3::{Bound, FromPyObject, PyResult, Python, pyclass, pymethods};
use wire::Family;

use crate::failure;

/// Headers that are looked up at once.
const BATCH: usize = 64;

/// Rules, ready to be searched.
#[pyclass(frozen, module = "wirerate._wirerate")]
pub(crate) struct Classifier {
    search: Choice,
}

/// Columns of headers: of each as many values as there are headers, in the order of the machine; addresses of 4 bytes so, of 16 in that
/// of the network.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Columns {
    source: PyBackedBytes,
    destination: PyBackedBytes,
    sport: PyBackedBytes,
    dport: PyBackedBytes,
    protocol: PyBackedBytes,
    tcp_flags: Option<PyBackedBytes>,
}

#[pymethods]
impl Classifier {
    /// Builds a search for a ClassBench filter set; `file` is its name in errors.
    #[new]
    fn new(py: Python<'_>, text: PyBackedBytes, file: &str, algorithm: Option<&str>) -> PyResult<Classifier> {
        let wanted = algorithm.map(named).transpose()?;
        let patterns =
            py.detach(|| read(&text, file)).map_err(|message| failure::policy_error(py, message, &[]))?;
        let bounds = Bounds::of(patterns.len());
        let search = py.detach(|| Choice::new(Task { patterns, wanted, bounds }));
        match search.gave_way.iter().find(|(algorithm, _)| Some(*algorithm) == wanted) {
            Some((algorithm, why)) => {
                Err(failure::policy_error(py, format!("{file}: {} {why}", algorithm.name), &[]))
            }
            None => Ok(Classifier { search }),
        }
    }

    /// Name of the algorithm.
    #[getter]
    fn algorithm(&self) -> &'static str {
        self.search.algorithm.name
    }

    /// Number of rules.
    fn __len__(&self) -> usize {
        self.search.task.patterns.len()
    }

    /// Memory of the search, in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.search.classifier.memory_bytes()
    }

    /// Returns the position of the first rule that matches each header, or -1, as 32 bits each.
    fn positions<'py>(&self, py: Python<'py>, columns: Columns) -> Bound<'py, PyBytes> {
        let found = py.detach(|| self.search(&columns));
        PyBytes::new(py, &found)
    }
}

impl Classifier {
    fn search(&self, columns: &Columns) -> Vec<u8> {
        let count = columns.protocol.len();
        let (mut headers, mut positions) = (Vec::with_capacity(BATCH), [0; BATCH]);
        let mut found = Vec::with_capacity(count * 4);
        for first in (0..count).step_by(BATCH) {
            headers.clear();
            headers.extend((first..count.min(first + BATCH)).map(|place| columns.header(place)));
            let positions = &mut positions[..headers.len()];
            self.search.classifier.classify_bulk(&headers, positions);
            for position in positions {
                let position = if *position == NO_MATCH { -1 } else { *position as i32 };
                found.extend(position.to_ne_bytes());
            }
        }
        found
    }
}

impl Columns {
    fn header(&self, place: usize) -> Header {
        let (source, family) = address(&self.source, place, self.protocol.len());
        let (destination, _) = address(&self.destination, place, self.protocol.len());
        Header {
            source,
            destination,
            protocol: self.protocol[place],
            tcp_flags: self.tcp_flags.as_ref().map_or(0, |flags| flags[place]),
            family,
            sport: port(&self.sport, place),
            dport: port(&self.dport, place),
            // A filter set has neither zones nor interfaces: any will do.
            from: 1,
            to: 2,
            egress: 1,
            ..Header::default()
        }
    }
}

/// Value of 4 or 16 bytes, by the length of the column of `count`.
fn address(column: &[u8], place: usize, count: usize) -> (u128, Family) {
    if column.len() == count * 4 {
        let bytes = column[place * 4..].first_chunk().copied().unwrap_or_default();
        (u32::from_ne_bytes(bytes).into(), Family::V4)
    } else {
        let bytes = column.get(place * 16..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        (u128::from_be_bytes(bytes), Family::V6)
    }
}

fn port(column: &[u8], place: usize) -> u16 {
    u16::from_ne_bytes([column[place * 2], column[place * 2 + 1]])
}

fn named(name: &str) -> PyResult<&'static Algorithm> {
    Algorithm::named(name).ok_or_else(|| {
        let known: Vec<&str> = ALGORITHMS.iter().map(|algorithm| algorithm.name).collect();
        PyValueError::new_err(format!("no algorithm \"{name}\"; there are {}", known.join(", ")))
    })
}

/// Patterns of a filter set: one for each line, so that positions are those in the file.
fn read(text: &[u8], file: &str) -> Result<Vec<Pattern>, String> {
    let Some(importer) = import::find("classbench") else {
        return Err("no importer for ClassBench".to_owned());
    };
    let imported = importer.import(text, None).map_err(|error| format!("{file}: {error}"))?;
    if let Some(missing) = imported.untranslated.first() {
        return Err(format!("{file}: {missing}"));
    }
    let patterns = patterns(&imported.policy).map_err(|error| format!("{file}: {error}"))?;
    if patterns.is_empty() { Err(format!("{file} has no rules")) } else { Ok(patterns) }
}
