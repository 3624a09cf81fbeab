// An exported model from Rust: zeros in, the largest output and its place out.
use std::ffi::{c_char, c_int, c_void, CStr, CString};

#[repr(C)]
struct Tensor {
    name: *const c_char,
    kind: *const c_char,
    shape: *const i64,
    bytes: usize,
    rank: i32,
}

#[link(name = "model")]
extern "C" {
    fn model_create(weights: *const c_char, made: *mut *mut c_void) -> c_int;
    fn model_run(
        instance: *mut c_void,
        inputs: *const *const c_void,
        outputs: *const *mut c_void,
    ) -> c_int;
    fn model_destroy(instance: *mut c_void);
    fn model_input(number: c_int) -> *const Tensor;
    fn model_output(number: c_int) -> *const Tensor;
    fn model_error(code: c_int) -> *const c_char;
}

fn check(code: c_int) {
    if code != 0 {
        let text = unsafe { CStr::from_ptr(model_error(code)) };
        panic!("{}", text.to_string_lossy());
    }
}

fn main() {
    let path = CString::new("model.weights").unwrap();
    let mut instance = std::ptr::null_mut();
    check(unsafe { model_create(path.as_ptr(), &mut instance) });
    let input = vec![0f32; unsafe { (*model_input(0)).bytes } / 4];
    let mut output = vec![0f32; unsafe { (*model_output(0)).bytes } / 4];
    let inputs = [input.as_ptr() as *const c_void];
    let outputs = [output.as_mut_ptr() as *mut c_void];
    check(unsafe { model_run(instance, inputs.as_ptr(), outputs.as_ptr()) });
    unsafe { model_destroy(instance) };
    let best = (0..output.len())
        .max_by(|&a, &b| output[a].total_cmp(&output[b]))
        .unwrap();
    println!("class {}: {:.6}", best, output[best]);
}
