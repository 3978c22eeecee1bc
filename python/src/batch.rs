//! Record batches for Python, by Arrow's C data interface: neither side copies.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::{ArrowError, Schema};
use pyo3::exceptions::PyRuntimeError;
use pyo3::types::PyCapsule;
use pyo3::{Bound, PyErr, PyResult, Python, pyclass, pymethods};

/// A record batch; `pyarrow.record_batch` and others take it by the PyCapsule interface.
#[pyclass(frozen, module = "wirerate._wirerate")]
pub(crate) struct Batch(pub(crate) RecordBatch);

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.0.schema())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A producer may disregard it.
        let _ = requested_schema;
        let rows = StructArray::from(self.0.clone());
        let (array, _): (FFI_ArrowArray, _) = to_ffi(&rows.to_data()).map_err(failed)?;
        Ok((schema_capsule(py, &self.0.schema())?, PyCapsule::new_with_value(py, array, c"arrow_array")?))
    }
}

fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(failed)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

/// A fault of this program: the columns are not those of their schema.
pub(crate) fn failed(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
