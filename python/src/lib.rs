//! Native half of the Python package `wirerate`: the module `wirerate._wirerate`.
//!
//! Functions that people call, with their documentation and types, are in `wirerate/*.py`; here is what has to be fast or is the same as in the
//! command. Results of many rows are Arrow arrays, others JSON, so that nothing is converted twice.
//!
//! The interpreter lock is released while anything is read, played or searched.

use pyo3::types::{PyModule, PyModuleMethods};
use pyo3::{Bound, PyResult, pymodule, wrap_pyfunction};

mod batch;
mod chip;
mod classify;
mod column;
mod failure;
mod flows;
mod keys;
mod packets;
mod playback;
mod policy;
mod report;
mod reproduce;
mod split;
mod sweep;
mod watch;

#[pymodule]
fn _wirerate(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<chip::Chip>()?;
    module.add_class::<classify::Classifier>()?;
    module.add_class::<chip::Job>()?;
    module.add_class::<playback::Playback>()?;
    module.add_class::<policy::Policy>()?;
    module.add_class::<sweep::Sweep>()?;
    module.add_function(wrap_pyfunction!(chip::chips, module)?)?;
    module.add("PACKET_SYNTAX", ::report::packet_syntax::GRAMMAR)?;
    module.add_function(wrap_pyfunction!(report::check, module)?)?;
    module.add_function(wrap_pyfunction!(report::check_file, module)?)?;
    module.add_function(wrap_pyfunction!(report::check_text, module)?)?;
    module.add_function(wrap_pyfunction!(report::diff, module)?)?;
    module.add_function(wrap_pyfunction!(report::explain, module)?)?;
    module.add_function(wrap_pyfunction!(reproduce::reproduce, module)?)?;
    module.add_function(wrap_pyfunction!(split::merge, module)?)?;
    module.add_function(wrap_pyfunction!(split::obstacles, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::values, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::objectives, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::objective, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::bound, module)?)?;
    module.add_function(wrap_pyfunction!(playback::check_moment, module)?)?;
    module.add_function(wrap_pyfunction!(playback::empty, module)?)
}
