/* ncclGetVersion through JNI as one would write it by hand: what BindingsBench compares with. */
#include <dlfcn.h>
#include <jni.h>
#include <stdint.h>

static int (*get_version)(int *);

JNIEXPORT jboolean JNICALL Java_io_jccl_bench_jmh_JniTwin_bind(JNIEnv *env, jclass cls, jstring path)
{
    (void)cls;
    const char *file = (*env)->GetStringUTFChars(env, path, NULL);
    if (file == NULL) {
        return JNI_FALSE;
    }
    void *library = dlopen(file, RTLD_LAZY);
    (*env)->ReleaseStringUTFChars(env, path, file);
    if (library != NULL) {
        get_version = (int (*)(int *))dlsym(library, "ncclGetVersion");
    }
    return get_version != NULL;
}

JNIEXPORT jint JNICALL Java_io_jccl_bench_jmh_JniTwin_ncclGetVersion(JNIEnv *env, jclass cls, jlong out)
{
    (void)env;
    (void)cls;
    return get_version((int *)(intptr_t)out);
}
