//! Common style of plots: colours, mesh, and SVG as a string.

use plotters::chart::MeshStyle;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::{BLACK, Color, DrawingBackend, RGBColor, SVGBackend};

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Colour(pub(crate) u8, pub(crate) u8, pub(crate) u8);

impl From<Colour> for RGBColor {
    fn from(Colour(red, green, blue): Colour) -> RGBColor {
        RGBColor(red, green, blue)
    }
}

pub(crate) const INK: Colour = Colour(0x1f, 0x29, 0x33);
pub(crate) const BLUE: Colour = Colour(0x2b, 0x6c, 0xb0);
pub(crate) const TEAL: Colour = Colour(0x31, 0x97, 0x95);
pub(crate) const ORANGE: Colour = Colour(0xdd, 0x6b, 0x20);
pub(crate) const PURPLE: Colour = Colour(0x6b, 0x46, 0xc1);
pub(crate) const RED: Colour = Colour(0xc5, 0x30, 0x30);
pub(crate) const PALE: Colour = Colour(0xa3, 0xbf, 0xd9);
pub(crate) const GREY: Colour = Colour(0x66, 0x78, 0x8a);

/// Colours of curves that have none of their own, in their order.
pub(crate) const CURVES: [Colour; 8] =
    [BLUE, ORANGE, TEAL, PURPLE, RED, Colour(0xb7, 0x79, 0x1f), PALE, GREY];

/// Outcome of drawing.
pub(crate) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Font of labels.
pub(crate) const FONT: (&str, i32) = ("sans-serif", 13);

/// Font of labels of small charts.
pub(crate) const SMALL: (&str, i32) = ("sans-serif", 11);

/// Returns what `draw` draws, as SVG; the error is what the library says.
pub(crate) fn svg(size: (u32, u32), draw: impl FnOnce(SVGBackend<'_>) -> Drawn) -> Result<String, String> {
    let mut svg = String::new();
    draw(SVGBackend::with_string(&mut svg, size)).map_err(|error| error.to_string())?;
    Ok(svg)
}

/// Styles of a mesh: faint lines, dim axes, labels in the font of pages.
pub(crate) fn style<'a, 'b, 'm, X, Y, DB>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, DB>,
    font: (&'b str, i32),
) -> &'m mut MeshStyle<'a, 'b, X, Y, DB>
where
    X: Ranged + ValueFormatter<X::ValueType>,
    Y: Ranged + ValueFormatter<Y::ValueType>,
    DB: DrawingBackend,
{
    mesh.light_line_style(BLACK.mix(0.04))
        .bold_line_style(BLACK.mix(0.1))
        .axis_style(BLACK.mix(0.4))
        .label_style(font)
}
