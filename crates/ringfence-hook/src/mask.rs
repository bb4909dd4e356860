//! What came back from a call, without secrets.

use ringfence::mask::Mask;
use serde_json::Value;

use crate::call::Returned;

impl Returned {
    /// What came back with every secret taken out; nothing where there is none in it.
    pub fn masked(&self, mask: &Mask) -> Option<Value> {
        let mut response = self.response.clone();
        take_out(mask, &mut response).then_some(response)
    }
}

/// Takes secrets out of every text; says whether there were any.
fn take_out(mask: &Mask, value: &mut Value) -> bool {
    match value {
        Value::String(text) => match mask.text(text) {
            Some(masked) => {
                *text = masked;
                true
            }
            None => false,
        },
        Value::Array(values) => values.iter_mut().fold(false, |any, value| take_out(mask, value) | any),
        Value::Object(fields) => fields.values_mut().fold(false, |any, value| take_out(mask, value) | any),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
