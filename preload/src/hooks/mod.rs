//! The hooks, by family. What a family name means is the same in `rsocket::calls`.

pub(crate) mod creator;
pub(crate) mod descriptor;
pub(crate) mod epoll;
pub(crate) mod exec;
pub(crate) mod exit;
pub(crate) mod io;
pub(crate) mod option;
pub(crate) mod poll;
pub(crate) mod print;
pub(crate) mod process;
pub(crate) mod rights;
pub(crate) mod seek;
pub(crate) mod select;
pub(crate) mod socket;
pub(crate) mod splice;
pub(crate) mod stream;
pub(crate) mod system_call;

/// The real function, called.
macro_rules! real {
    ($name:ident($($argument:ident: $kind:ty),*) -> $result:ty) => {{
        let function = $crate::real::function($crate::real::Symbol::$name);
        // SAFETY: the table holds under this symbol the function of that name, which C declares so.
        let function: unsafe extern "C" fn($($kind),*) -> $result = unsafe { core::mem::transmute(function) };
        // SAFETY: the arguments are the caller's own, whose promises to this function are those of its man page.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use real;

/// Defines hooks: `fn name(arguments) -> result = guard => call;` where the call gives a `Route`.
///
/// Guards and calls are given the program's pointers: the promises that the program makes to the C function. What is done for
/// an rsocket is a function of its own, so that the way to the real function has no stack frame.
macro_rules! hooks {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty = $guard:expr => $call:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            #[inline(never)]
            extern "C" fn serve($($argument: $kind),*) -> $result {
                // SAFETY: the program's promises are those of the function's man page, which are the ones asked for.
                #[allow(unused_unsafe)]
                let answer = rsocket::capi::boundary::answer(|| unsafe { $call });
                match answer {
                    Some(answer) => answer,
                    None => $crate::hooks::real!($name($($argument: $kind),*) -> $result),
                }
            }
            // SAFETY: the program's promises are those of the function's man page, which are the ones asked for.
            #[allow(unused_unsafe)]
            let ours = unsafe { $guard };
            if ours {
                return serve($($argument),*);
            }
            $crate::hooks::real!($name($($argument: $kind),*) -> $result)
        }
    )*};
}
pub(crate) use hooks;
