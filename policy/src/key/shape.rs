//! Shapes of interfaces.

use config::{Entry, section};

use super::{Keys, Table};
use crate::model::Shape;
use crate::value::key;
use crate::value::meter::OVERHEAD;
use crate::value::shape::{RATES, Rates};
use crate::word;

/// Keys of `[shape.NAME]`.
pub(super) fn shape(keys: &mut Keys<'_, '_>, shape: &mut Shape) {
    let mut rates = Rates { down: shape.down, up: shape.up };
    keys.required("rate", "\"100 Mbit/s / 20 Mbit/s\"", RATES, &mut rates);
    (shape.down, shape.up) = (rates.down, rates.up);
    keys.key("per", word::FAIRNESS, &mut shape.per);
    keys.optional("overhead", OVERHEAD, &mut shape.overhead);
    keys.key("workers", word::TREE_WORKERS, &mut shape.workers);
}

/// `[shape]`: the tables of all shapes.
pub(super) fn shapes(keys: &mut Keys<'_, '_>, shapes: &mut Vec<Shape>) -> Vec<Option<Entry>> {
    match keys {
        Keys::Read(top) => section(top, "shape")
            .into_iter()
            .map(|(name, value)| {
                let mut read = Shape::new(name.get_ref());
                let mut table = Table::of(top.sink(), value, "a shape")?;
                shape(&mut Keys::Read(&mut table), &mut read);
                shapes.push(read);
                Some(Entry { span: name.span(), ..table.finish() })
            })
            .collect(),
        Keys::Print(out) => {
            for one in shapes {
                out.header(&format!("[shape.{}]", key(&one.interface)));
                shape(&mut Keys::Print(out), one);
            }
            Vec::new()
        }
    }
}
