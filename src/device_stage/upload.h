/* upload.h -- the device stage, as the pipeline knows it (pipeline/device_stage.h). */
#ifndef FB_DEVICE_STAGE_UPLOAD_H
#define FB_DEVICE_STAGE_UPLOAD_H
#include "pipeline/device_stage.h"

extern const struct fb_device_stage fb_device_stage;
#endif
