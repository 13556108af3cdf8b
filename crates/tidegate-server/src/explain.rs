//! x
#[derive(serde::Serialize)]
pub struct Explanation {
    pub admitted: bool,
}
impl Explanation {
    pub fn render(&self) -> String {
        String::new()
    }
}
pub fn explain(
    _: &tidegate_core::Book,
    _: &tidegate_counters::Memory,
    _: &tidegate_core::Query<'_>,
    _: tidegate_core::Micros,
) -> Explanation {
    Explanation { admitted: true }
}
