//! Columns of names and addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use arrow_array::builder::{PrimitiveBuilder, StringBuilder};
use arrow_array::types::{ArrowDictionaryKeyType, Int32Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, StringArray};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{ArrowError, DataType, Field};

/// Column of names, each from a list that all batches share.
pub(crate) struct Names<K: ArrowDictionaryKeyType> {
    keys: PrimitiveBuilder<K>,
    names: ArrayRef,
}

impl<K: ArrowDictionaryKeyType> Names<K> {
    /// No row yet.
    pub(crate) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Names<K> {
        let names = StringArray::from_iter_values(names);
        Names { keys: PrimitiveBuilder::new(), names: Arc::new(names) }
    }

    /// Adds the name of that place, or none where there is no such place.
    pub(crate) fn push(&mut self, place: Option<usize>) {
        let place = place.filter(|place| *place < self.names.len());
        self.keys.append_option(place.and_then(<K::Native as ArrowNativeType>::from_usize));
    }

    /// Takes the rows.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(DictionaryArray::<K>::try_new(self.keys.finish(), Arc::clone(&self.names))?))
    }
}

/// Column of addresses as text, each once in a batch.
pub(crate) struct Addresses {
    keys: PrimitiveBuilder<Int32Type>,
    places: HashMap<IpAddr, i32>,
    texts: StringBuilder,
}

impl Addresses {
    /// No row yet.
    pub(crate) fn new() -> Addresses {
        Addresses { keys: PrimitiveBuilder::new(), places: HashMap::new(), texts: StringBuilder::new() }
    }

    /// Adds an address.
    pub(crate) fn push(&mut self, address: Option<IpAddr>) {
        let Addresses { keys, places, texts } = self;
        keys.append_option(address.map(|address| {
            // A batch has fewer rows than 2^31.
            let next = places.len() as i32;
            *places.entry(address).or_insert_with(|| {
                texts.append_value(address.to_string());
                next
            })
        }));
    }

    /// Takes the rows.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.places.clear();
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(
            self.keys.finish(),
            Arc::new(self.texts.finish()),
        )?))
    }
}

/// Field of names with keys of a type.
pub(crate) fn names_field(name: &str, key: DataType, nullable: bool) -> Field {
    Field::new(name, DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8)), nullable)
}
